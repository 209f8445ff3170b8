"""Data set of images and label maps that a file lists in pairs."""

import os.path as osp

from mmengine.dataset import BaseDataset
from mmengine.fileio import list_from_file
from mmengine.registry import DATASETS

from snnet_mm.utils import check


@DATASETS.register_module()
class PairedDataset(BaseDataset):
    """Images and label maps with any names.

    Every line of ``ann_file`` has one path for each key of ``data_prefix``, the image's
    first, relative to its folder and separated by tabs. The keys are those of mmseg's
    transforms: ``img_path`` and ``seg_map_path``, or ``depth_map_path``.

    Args:
        label_map: New labels by old ones, of masks in which labels are to be replaced.
        **kwargs: Arguments of ``BaseDataset``.
    """

    def __init__(self, label_map: dict[int, int] | None = None, **kwargs) -> None:
        self.label_map = label_map
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        """Return the paths in every line, for mmseg's transforms."""
        # Written configs sort their keys.
        keys = sorted(self.data_prefix, key=lambda key: key != 'img_path')
        infos = []
        for line in list_from_file(self.ann_file):
            names = line.split('\t')
            expected = f'one path for each of {keys} per line'
            right = len(names) == len(keys)
            check(right, 'dataset.ann_file', f'{self.ann_file}: {line}', expected)
            pairs = zip(keys, names, strict=True)
            paths = {key: osp.join(self.data_prefix[key], name) for key, name in pairs}
            more = dict(reduce_zero_label=False, seg_fields=[])
            infos.append(paths | more | dict(label_map=self.label_map))
        return infos
