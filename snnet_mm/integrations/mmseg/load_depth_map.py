"""Reading depth maps."""

from __future__ import annotations

from mmseg.datasets.transforms import LoadDepthAnnotation
from mmseg.registry import TRANSFORMS


@TRANSFORMS.register_module()
class LoadDepthMap(LoadDepthAnnotation):
    """mmseg's loading of a depth map, which refuses one that does not fit its image.

    Args:
        depth_rescale_factor: Metres of one unit of the file; 1e-3 for millimetres.
        **kwargs: See mmseg's ``LoadDepthAnnotation``.

    Raises:
        ValueError: If the factor is not positive.
    """

    def __init__(self, depth_rescale_factor: float = 1e-3, **kwargs) -> None:
        if depth_rescale_factor <= 0:
            raise ValueError(
                f'depth_rescale_factor={depth_rescale_factor}; allowed is more than 0 '
                '(config key: LoadDepthMap.depth_rescale_factor)'
            )
        super().__init__(depth_rescale_factor=depth_rescale_factor, **kwargs)

    def transform(self, results: dict) -> dict:
        """Add ``gt_depth_map`` (H, W) in metres, 0 where there is none.

        Raises:
            ValueError: If it has not the size of the image file.
        """
        results = super().transform(results)
        found, wanted = results['gt_depth_map'].shape, tuple(results['ori_shape'][:2])
        if found != wanted:
            raise ValueError(
                f'depth map {results["depth_map_path"]} of shape {found} for an image '
                f'of shape {wanted}; allowed are equal shapes (config key: '
                'dataset.data_prefix)'
            )
        return results
