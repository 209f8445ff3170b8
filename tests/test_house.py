"""The house of DESIGN.md, section 3: what may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine import registry

PACKAGE = Path(__file__).parents[1] / 'snnet_mm'
MM_PACKAGES = {'mmcv', 'mmdet', 'mmpretrain', 'mmseg', 'timm'}
SLOW_PACKAGES = {'matplotlib', 'onnx', 'scipy', 'triton'}

# What each part may import of ours, itself and utils excepted.
BELOW = {'utils': set(), 'stitching': set(), 'datasets': set()}
BELOW['layers'] = BELOW['visualization'] = {'stitching'}
BELOW['anchors'] = {'layers', 'stitching'}
BELOW['models'] = {'layers', 'anchors', 'stitching'}
BELOW['analysis'] = {'models'} | BELOW['models']
BELOW['engine'] = {'analysis', 'visualization'} | BELOW['analysis']
BELOW['export'] = {'datasets'} | BELOW['engine']
BELOW['integrations'] = set(BELOW) - {'integrations'}
BELOW['apis'] = set(BELOW)
# utils is for every part but the one that stands alone.
WITHOUT_UTILS = {'utils', 'stitching'}

# What else each part may import, where that is not up to the part.
OUTSIDE = {'stitching': set()} | {
    part: {'torch', 'mmengine'} for part in ('layers', 'anchors', 'models')
}
# Looked up only when a checkpoint of timm is asked for, inside one function.
LAZY = {('anchors/pretrained.py', 'timm')}


def imported_names(path, source):
    """Absolute dotted names of everything a file of the package imports."""
    package = ['snnet_mm', *Path(path).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = '.'.join([*base, *([node.module] if node.module else [])])
            yield from (f'{base}.{alias.name}' for alias in node.names)


def wrong_imports(path, source):
    """Names that a file, by its path inside the package, must not import."""
    part = Path(path).parts[0]
    if part not in BELOW:
        return [f'{part} has no place in the house']
    allowed = {part} | BELOW[part]
    if part not in WITHOUT_UTILS:
        allowed.add('utils')
    wrong = []
    for name in imported_names(path, source):
        top, *rest = name.split('.')
        if top == 'snnet_mm':
            ok = rest[0] in allowed
        elif top in sys.stdlib_module_names:
            ok = True
        elif top in MM_PACKAGES:
            ok = part == 'integrations' or (path, top) in LAZY
        else:
            ok = part not in OUTSIDE or top in OUTSIDE[part]
        if not ok:
            wrong.append(name)
    return wrong


FILES = sorted(
    str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob('*.py') if p.parent != PACKAGE
)


@pytest.mark.parametrize('path', FILES)
def test_imports_point_one_way(path):
    assert wrong_imports(path, (PACKAGE / path).read_text()) == []


def test_all_parts_were_seen():
    assert {'stitching', 'layers', 'anchors', 'models', 'analysis', 'engine'} < {
        Path(path).parts[0] for path in FILES
    }


@pytest.mark.parametrize(
    ('path', 'source', 'wrong'),
    [
        ('stitching/a.py', 'import math, json.decoder', []),
        ('stitching/a.py', 'from .b import c', []),
        ('stitching/a.py', 'import numpy as np', ['numpy']),
        ('stitching/a.py', 'from torch import nn', ['torch.nn']),
        ('stitching/a.py', 'from ..utils import files', ['snnet_mm.utils.files']),
        ('layers/a.py', 'from snnet_mm.stitching import b', []),
        ('layers/a.py', 'from snnet_mm import anchors', ['snnet_mm.anchors']),
        ('anchors/a.py', 'from snnet_mm.layers import b', []),
        ('anchors/a.py', 'import snnet_mm.models as m', ['snnet_mm.models']),
        ('anchors/a.py', 'import numpy', ['numpy']),
        ('models/b/c.py', 'from .d import e', []),
        ('models/b/c.py', 'from ..d import e', []),
        ('models/b/c.py', 'from ...layers import e', []),
        ('models/b/c.py', 'from ... import apis', ['snnet_mm.apis']),
        ('models/b/c.py', 'def f():\n    import mmcv.ops', ['mmcv.ops']),
        ('analysis/a.py', 'from ..engine import b', ['snnet_mm.engine.b']),
        ('engine/a.py', 'from ..apis.b import c', ['snnet_mm.apis.b.c']),
        ('engine/a.py', 'if 1:\n    from timm import c', ['timm.c']),
        ('visualization/a.py', 'from ..analysis import c', ['snnet_mm.analysis.c']),
        ('datasets/a.py', 'from snnet_mm import engine', ['snnet_mm.engine']),
        ('datasets/a.py', 'from snnet_mm.utils import b', []),
        ('utils/a.py', 'from ..stitching import b', ['snnet_mm.stitching.b']),
        ('integrations/mmseg/a.py', 'import mmseg, snnet_mm.engine', []),
        ('integrations/mmseg/a.py', 'from ... import apis', ['snnet_mm.apis']),
        ('apis/a.py', 'from ..integrations import mmseg', []),
        ('apis/a.py', 'import mmdet', ['mmdet']),
        ('helpers/a.py', '', ['helpers has no place in the house']),
    ],
)
def test_wrong_imports_are_seen(path, source, wrong):
    assert wrong_imports(path, source) == wrong


def test_importing_the_package_pulls_in_no_mm_package_and_nothing_slow():
    script = (
        'import sys, mmengine.runner; before = set(sys.modules);'
        'import snnet_mm, snnet_mm.apis;'
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    command = [sys.executable, '-c', script]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=PACKAGE.parent
    )
    imported = set(done.stdout.split())
    assert 'snnet_mm' in imported
    assert imported & {*MM_PACKAGES, *SLOW_PACKAGES} == set()


def our_names():
    """Registry and name of everything that we register in mmengine's root."""
    for root in vars(registry).values():
        if isinstance(root, registry.Registry):
            for name, thing in root.module_dict.items():
                if thing.__module__.startswith('snnet_mm.'):
                    yield root, name, thing


def test_parts_are_registered():
    names = {name for _, name, _ in our_names()}
    assert names >= {
        'LoRAStitchingLayer',
        'PlainViT',
        'ResourceConstrainedSampler',
        'SNNetv2',
        'StitchInitHook',
        'StitchSamplingHook',
        'StitchTestLoop',
        'StitchValLoop',
        'StitchingLayer',
        'ToyScenes',
        'UniformSampler',
    }


@pytest.mark.parametrize('scope', ['mmseg', 'mmdet', 'mmpretrain'])
def test_our_names_are_new_and_resolve_in_every_scope(scope):
    pytest.importorskip(scope)
    utils = pytest.importorskip(f'{scope}.utils')
    utils.register_all_modules(init_default_scope=False)
    for root, name, thing in our_names():
        child = root.children.get(scope)
        if child is not None:
            assert name not in child.module_dict
            assert child.get(name) is thing
