"""One stitched backbone that serves every compute budget in dense prediction.

Importing the package registers its parts in mmengine's root registries; where mmengine
is not installed, on a device, :mod:`snnet_mm.runtime` alone can be imported. Parts that
subclass a class of mmseg, mmdet or mmpretrain live in ``snnet_mm.tasks`` and
are imported by the configs that need them.
"""

from importlib.util import find_spec
from pathlib import Path

from .version import __version__

# Folder of the configs that are installed with the package, for bases of own ones.
CONFIGS = str(Path(__file__).parent / '.mim' / 'configs')

if find_spec('mmengine') is not None:
    from . import (
        anchors,
        bridging,
        costs,
        datasets,
        elastic,
        esta,
        evaluation,
        models,
        tasks,
        training,
    )
