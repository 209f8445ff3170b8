"""One stitched backbone that serves every compute budget in dense prediction.

``custom_imports = dict(imports=['snnet_mm'])`` of a config registers all classes: they
are registered on import if mmengine was imported before, and at the first use of a
public name. A program that imports the package before mmengine, and has configs read by
mmengine alone, imports :mod:`snnet_mm.register`. Parts that subclass a class of mmseg,
mmdet or mmpretrain are imported by the configs that need them
(``snnet_mm.tasks``).
"""

import sys
from pathlib import Path

from .version import __version__

# Folder of the configs that are installed with the package, for bases of own ones.
CONFIGS = str(Path(__file__).parent / '.mim' / 'configs')

if sys.modules.get('mmengine') is not None:
    from . import register
