"""One stitched backbone that serves every compute budget in dense prediction.

Importing the package registers its parts in mmengine's root registries. Parts that
subclass a class of mmseg, mmdet or mmpretrain live in ``snnet_mm.integrations`` and
are imported by the configs that need them. Configs of the package have names such as
``snnet_mm::camvid/....py`` then.
"""

from . import anchors, bridging, datasets, engine, evaluation, models
from .utils import register_config_names
from .version import __version__

register_config_names()

__all__ = [
    '__version__',
    'anchors',
    'bridging',
    'datasets',
    'engine',
    'evaluation',
    'models',
]
