"""The house of DESIGN.md, section 3: what may import what."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from mmengine import registry

PACKAGE = Path(__file__).parents[1] / 'snnet_mm'
MM_PACKAGES = {'mmcv', 'mmdet', 'mmpretrain', 'mmseg', 'timm'}
SLOW_PACKAGES = {'matplotlib', 'onnx', 'scipy', 'triton'}

# What each part may import of ours: itself and all that stands before it.
ORDER = ['runtime', 'utils', 'stitching', 'anchors', 'tasks', 'models', 'costs']
ORDER += ['evaluation', 'training', 'exports', 'inference']
BELOW = {part: set(ORDER[:i]) for i, part in enumerate(ORDER)}
BELOW['datasets'] = {'runtime', 'utils'}
for part in ('evaluation', 'training', 'exports', 'inference'):
    BELOW[part].add('datasets')
# On top of these; nothing below names them.
BELOW['serving'] = {'runtime'}
for part in ('elastic', 'esta', 'bridging', 'language'):
    BELOW[part] = {*ORDER, 'datasets'}

# What else each part may import, where that is not up to the part.
OUTSIDE = {part: {'torch', 'mmengine'} for part in ('anchors', 'models')}
OUTSIDE['runtime'] = {'PIL', 'numpy', 'onnxruntime', 'openvino', 'supervision'}
OUTSIDE['serving'] = {'PIL', 'fastapi', 'ray'}
OUTSIDE['stitching'] = set()
# Looked up only when a checkpoint of timm is asked for, or a network of mm is run.
LAZY = {('anchors/pretrained.py', 'timm'), ('utils/torchvision_ops.py', 'mmcv')}
LAZY |= {('anchors/mm_families.py', name) for name in ('mmpretrain', 'mmseg')}


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

    def is_right(top, ours=None, *_):
        if top == 'snnet_mm':
            return ours in allowed
        if top in MM_PACKAGES:
            return (part == 'tasks' and '_parts/' in path) or (path, top) in LAZY
        known = top in sys.stdlib_module_names or part not in OUTSIDE
        return known or top in OUTSIDE[part]

    names = imported_names(path, source)
    return [name for name in names if not is_right(*name.split('.'))]


FILES = sorted(
    str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob('*.py') if p.parent != PACKAGE
)


@pytest.mark.parametrize('path', FILES)
def test_imports_point_one_way(path):
    assert wrong_imports(path, (PACKAGE / path).read_text()) == []


TOOLS = [
    p for p in (PACKAGE.parent / 'tools').rglob('*.py') if '__main__' in p.read_text()
]


HELP = """
import os, runpy, sys, numpy, snnet_mm.runtime
for tool in sys.argv[1:]:
    if not os.fork():
        sys.argv = [tool, '--help']
        try:
            runpy.run_path(tool, run_name='__main__')
        finally:
            print('MODULES', *sys.modules, 'TOOL', end='', flush=True)
    os.wait()
"""


def test_help_needs_neither_torch_nor_mmengine_nor_ray():
    command = [sys.executable, '-c', HELP, *map(str, TOOLS)]
    printed = subprocess.check_output(command, text=True, cwd=PACKAGE.parent)
    for tool, part in zip(TOOLS, printed.split('TOOL')[:-1], strict=True):
        text, _, modules = part.partition('MODULES ')
        assert 'show this help message' in text, tool
        slow = {'torch', 'mmengine', 'ray', 'aiohttp'} & {*modules.split()}
        assert slow == set(), tool


def fresh(script, *options, **env):
    """What a new process prints that runs a script, as a set of words."""
    command = [sys.executable, *options, '-c', f'import sys; {script}']
    settings = dict(env=env) if env else dict(cwd=PACKAGE.parent)
    return {*subprocess.check_output(command, text=True, **settings).split()}


REGISTERED = 'from mmengine.registry import LOOPS, MODELS;'
REGISTERED += "assert 'StitchTestLoop' in LOOPS and 'SNNetv2' in MODELS;"


def test_the_package_registers_its_classes_and_imports_no_mm_package_and_nothing_slow():
    script = 'import mmengine.runner; before = {*sys.modules}; import snnet_mm;'
    imported = fresh(f'{script}{REGISTERED} print(*{{*sys.modules}} - before)')
    assert 'snnet_mm.esta' in imported
    tops = {name.partition('.')[0] for name in imported}
    assert tops & {*MM_PACKAGES, *SLOW_PACKAGES} == set()


def test_a_config_that_names_the_package_registers_its_classes(tmp_path):
    (tmp_path / 'a.py').write_text("custom_imports = dict(imports=['snnet_mm'])")
    script = f"import snnet_mm.utils as u; u.load_config('{tmp_path}/a.py');"
    assert 'snnet_mm.esta' in fresh(f'{script}{REGISTERED} print(*sys.modules)')


def test_the_package_and_its_runtime_are_cheap_where_all_is_installed():
    script = 'import snnet_mm as sn, snnet_mm.stitching; sn.Runtime, sn.Table;'
    imported = fresh(f'{script} print(*sys.modules)')
    assert 'snnet_mm.runtime' in imported
    assert {'torch', 'mmengine', 'snnet_mm.api'} & imported == set()


def test_the_runtime_pulls_in_numpy_alone():
    # As where mmengine is not installed.
    script = "sys.modules['mmengine'] = None; import snnet_mm.runtime;"
    # -S: an editable install imports what it likes.
    path = os.pathsep.join([str(PACKAGE.parent), str(Path(numpy.__file__).parents[1])])
    imported = fresh(f'{script} print(*sys.modules)', '-S', PYTHONPATH=path)
    imported = {name.partition('.')[0] for name in imported}
    ours = {'__main__', 'mmengine', 'snnet_mm'}
    assert imported - sys.stdlib_module_names <= ours | {'numpy'}


def our_names():
    """Registry and name of everything that we register in mmengine's root."""
    for root in vars(registry).values():
        if isinstance(root, registry.Registry):
            for name, thing in root.module_dict.items():
                if thing.__module__.startswith('snnet_mm.'):
                    yield root, name, thing


def test_parts_are_registered():
    names = {name for _, name, _ in our_names()}
    assert names >= {'PlainViT', 'SNNetv2', 'StitchTestLoop', 'ToyScenes'}


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
