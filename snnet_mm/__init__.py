"""One stitched backbone that serves every compute budget in dense prediction.

In a config, ``custom_imports = dict(imports=['snnet_mm'])`` registers all classes. They
are registered on import if mmengine was imported before, otherwise at the first use of
a public function. If a program imports the package before mmengine and only mmengine
reads its configs, it must import :mod:`snnet_mm.register`. Subclasses of mmseg, mmdet
and mmpretrain classes are imported by the configs that require them
(``snnet_mm.tasks``).
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .api import *

__all__ = [
    'Runtime',
    'Table',
    'evaluate',
    'export',
    'load',
    'make_elastic',
    'measure',
    'pick',
    'predict',
    'set_budget',
    'set_stitch',
    'stitch',
    'stitches',
    'train',
]

# Folder of the configs installed with the package, for use in ``_base_``.
CONFIGS = str(Path(__file__).parent / '.mim' / 'configs')

if sys.modules.get('mmengine') is not None:
    from . import register

# Classes that require no torch, unlike the module ``.api``.
_LIGHT = dict(
    Runtime=('.runtime', 'StitchRuntime'), Table=('.stitching', 'StitchTable')
)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    home, own = _LIGHT.get(name, ('.api', name))
    return getattr(import_module(home, __name__), own)


def __dir__() -> list[str]:
    return sorted([*__all__, 'CONFIGS', '__version__'])
