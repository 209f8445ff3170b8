from .norm_per_map import NormPerMap
from .simple_feature_pyramid import SimpleFeaturePyramid

__all__ = ['NormPerMap', 'SimpleFeaturePyramid']
