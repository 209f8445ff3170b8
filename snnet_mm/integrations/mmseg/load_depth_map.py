"""Reading depth maps."""

from mmseg.datasets.transforms import LoadDepthAnnotation
from mmseg.registry import TRANSFORMS

from snnet_mm.utils import check, register


@register(TRANSFORMS)
class LoadDepthMap(LoadDepthAnnotation):
    """mmseg's loading of a depth map in metres, which must fit its image."""

    def __init__(self, depth_rescale_factor: float = 1e-3, **kwargs) -> None:
        key = 'LoadDepthMap.depth_rescale_factor'
        check(depth_rescale_factor > 0, key, depth_rescale_factor, 'more than 0')
        super().__init__(depth_rescale_factor=depth_rescale_factor, **kwargs)

    def transform(self, results: dict) -> dict:
        """Add ``gt_depth_map`` (H, W) in metres, 0 where there is none."""
        results = super().transform(results)
        shape, wanted = results['gt_depth_map'].shape, tuple(results['ori_shape'][:2])
        found = f'{results["depth_map_path"]} of shape {shape}'
        check(
            shape == wanted, 'dataset.data_prefix', found, f'that of images, {wanted}'
        )
        return results
