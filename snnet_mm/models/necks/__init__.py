from .map_norms import MapNorms
from .simple_feature_pyramid import SimpleFeaturePyramid

__all__ = ['MapNorms', 'SimpleFeaturePyramid']
