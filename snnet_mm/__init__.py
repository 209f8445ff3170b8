"""One stitched backbone that serves every compute budget in dense prediction.

Importing the package registers its parts in mmengine's root registries. Parts that
subclass a class of mmseg, mmdet or mmpretrain live in ``snnet_mm.integrations`` and
are imported by the configs that need them.
"""

from pathlib import Path

from . import (
    anchors,
    bridging,
    datasets,
    engine,
    esta,
    evaluation,
    integrations,
    models,
)
from .version import __version__

# Folder of the configs that are installed with the package, for bases of own ones.
CONFIGS = str(Path(__file__).parent / '.mim' / 'configs')
