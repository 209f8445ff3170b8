"""One stitched backbone that serves every compute budget in dense prediction.

``custom_imports = dict(imports=['snnet_mm'])`` of a config registers all classes: they
are registered on import if mmengine was imported before, and at the first use of a
public name. A program that imports the package before mmengine, and has configs read by
mmengine alone, imports :mod:`snnet_mm.register`. Parts that subclass a class of mmseg,
mmdet or mmpretrain are imported by the configs that need them
(``snnet_mm.tasks``).
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .api import (
        Results,
        Runtime,
        evaluate,
        export,
        load,
        make_elastic,
        make_fast_anchor,
        measure,
        pick,
        predict,
        set_budget,
        set_stitch,
        stitch,
        stitches,
        train,
    )

__all__ = [
    'Results',
    'Runtime',
    'evaluate',
    'export',
    'load',
    'make_elastic',
    'make_fast_anchor',
    'measure',
    'pick',
    'predict',
    'set_budget',
    'set_stitch',
    'stitch',
    'stitches',
    'train',
]

# Folder of the configs that are installed with the package, for bases of own ones.
CONFIGS = str(Path(__file__).parent / '.mim' / 'configs')

if sys.modules.get('mmengine') is not None:
    from . import register

# What needs no torch has its home elsewhere than in the module that does.
_LIGHT = dict(
    Results=('.stitching', 'StitchResults'), Runtime=('.runtime', 'StitchRuntime')
)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    home, own = _LIGHT.get(name, ('.api', name))
    return getattr(import_module(home, __name__), own)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
