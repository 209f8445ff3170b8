"""Custom folders of images and depth maps."""

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from snnet_mm.utils import register


@register(DATASETS)
class DepthDataset(BaseSegDataset):
    """Images and depth maps, paired by name as mmseg pairs images and masks.

    Unlike mmseg's ``NYUDataset``, it accepts any file names, and a list of them as
    ``ann_file``. Depth maps are in ``data_prefix.seg_map_path``.
    """

    def load_data_list(self) -> list[dict]:
        infos = super().load_data_list()
        for info in infos:
            info['depth_map_path'] = info.pop('seg_map_path')
        return infos
