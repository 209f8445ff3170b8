"""Images with depth maps in folders of one's own."""

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from snnet_mm.utils import register


@register(DATASETS)
class DepthDataset(BaseSegDataset):
    """Images and depth maps of equal names, as mmseg reads images and masks.

    Unlike mmseg's ``NYUDataset`` it takes any names, and a list of them as
    ``ann_file``. The depth maps are in ``data_prefix.seg_map_path``.
    """

    def load_data_list(self) -> list[dict]:
        infos = super().load_data_list()
        for info in infos:
            info['depth_map_path'] = info.pop('seg_map_path')
        return infos
