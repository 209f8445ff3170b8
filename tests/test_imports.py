"""The folders of docs/explanation/architecture.md: what may import what."""

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
MM_ROOMS = 'tasks/mmdet/', 'tasks/mmpretrain/', 'tasks/mmseg/'
SLOW_PACKAGES = {'matplotlib', 'onnx', 'scipy', 'triton'}

# What each part may import of ours: itself and all that stands before it.
ORDER = ['runtime', 'utils', 'stitching', 'anchors', 'tasks', 'models', 'costs']
ORDER += ['evaluation', 'training', 'exports']
BELOW = {part: set(ORDER[:i]) for i, part in enumerate(ORDER)}
BELOW['datasets'] = {'runtime', 'utils'}
for part in ('evaluation', 'training', 'exports'):
    BELOW[part].add('datasets')
# On top of these; nothing below names them.
BELOW['serving'] = {'runtime'}
for part in ('elastic', 'esta', 'bridging', 'language'):
    BELOW[part] = {*ORDER, 'datasets'}

# What else each part may import, where that is not up to the part.
OUTSIDE = dict(anchors={'torch', 'mmengine'}, models={'torch', 'mmengine', 'numpy'})
OUTSIDE['runtime'] = {'PIL', 'cv2', 'numpy', 'onnxruntime', 'supervision'}
OUTSIDE['serving'] = {'PIL', 'fastapi', 'ray'}
OUTSIDE['stitching'] = set()
# Looked up only when a checkpoint of timm is asked for, or a network of mm is run.
LAZY = {('anchors/pretrained.py', 'timm'), ('utils/torchvision_ops.py', 'mmcv')}
LAZY |= {('anchors/mm_families.py', 'mmpretrain')}
LAZY |= {('anchors/timm_internals.py', 'timm')}


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


def is_right(path, name):
    """Return whether a file, by its path inside the package, may import a name."""
    part, (top, ours, *_) = Path(path).parts[0], [*name.split('.'), '']
    if top == 'snnet_mm':
        return ours in {part} | BELOW[part]
    if top in MM_PACKAGES:
        return path.startswith(MM_ROOMS) or (path, top) in LAZY
    known = top in sys.stdlib_module_names or part not in OUTSIDE
    return known or top in OUTSIDE[part]


def test_imports_point_one_way():
    files = [path for path in PACKAGE.rglob('*.py') if path.parent != PACKAGE]
    assert len(files) > 100
    for file in files:
        path = str(file.relative_to(PACKAGE))
        names = imported_names(path, file.read_text())
        assert [name for name in names if not is_right(path, name)] == [], path


def fresh(script, *args, **env):
    """What a new process prints that runs a script, as a set of words."""
    settings = dict(env=env) if env else dict(cwd=PACKAGE.parent)
    command = [sys.executable, *args, '-c', script]
    return {*subprocess.check_output(command, text=True, **settings).split()}


HELP = """
import contextlib, io, pathlib, runpy, sys
sys.path.append('tools')  # as when a tool is run
for tool in pathlib.Path('tools').rglob('*.py'):
    sys.argv, text = [str(tool), '--help'], io.StringIO()
    if '__main__' in tool.read_text():
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            runpy.run_path(str(tool), run_name='__main__')
        if 'show this help message' not in text.getvalue():
            sys.exit(f'{tool} printed {text.getvalue()!r}')
        if slow := {'torch', 'mmengine', 'ray', 'aiohttp'} & {*sys.modules}:
            sys.exit(f'{tool} imported {slow}')
"""


def test_tools_help_needs_no_torch_mmengine_ray():
    fresh(HELP)


# First the package alone, then mmengine, then the classes.
STAGES = """
import sys
import snnet_mm as sn, snnet_mm.stitching, snnet_mm.utils
sn.Runtime, sn.Table
assert {'torch', 'mmengine', 'snnet_mm.api'}.isdisjoint(sys.modules)
import mmengine.runner
from mmengine.registry import LOOPS, MODELS
before = {*sys.modules}
REGISTER
print(*{*sys.modules} - before)
assert 'StitchTestLoop' in LOOPS and 'SNNetv2' in MODELS
"""


@pytest.mark.slow
def test_register_is_late_and_without_mm_packages(tmp_path):
    (tmp_path / 'a.py').write_text("custom_imports = dict(imports=['snnet_mm'])")
    load = f"snnet_mm.utils.load_config('{tmp_path / 'a.py'}')"
    assert 'snnet_mm.esta' in fresh(STAGES.replace('REGISTER', load))
    imported = fresh(STAGES.replace('REGISTER', 'import snnet_mm.register'))
    assert 'snnet_mm.esta' in imported
    tops = {name.partition('.')[0] for name in imported}
    assert tops & {*MM_PACKAGES, *SLOW_PACKAGES} == set()


def test_runtime_imports_numpy_alone():
    # As where mmengine is not installed.
    script = "import sys; sys.modules['mmengine'] = None; import snnet_mm.runtime;"
    # -S: an editable install imports what it likes.
    path = os.pathsep.join([str(PACKAGE.parent), str(Path(numpy.__file__).parents[1])])
    imported = fresh(f'{script} print(*sys.modules)', '-S', PYTHONPATH=path)
    imported = {name.partition('.')[0] for name in imported}
    ours = {'__main__', 'mmengine', 'snnet_mm'}
    assert imported - sys.stdlib_module_names <= ours | {'numpy'}


@pytest.mark.parametrize('scope', ['mmseg', 'mmdet', 'mmpretrain'])
def test_registered_names_resolve_in_every_scope(scope):
    """And are new ones."""
    pytest.importorskip(scope)
    utils = pytest.importorskip(f'{scope}.utils')
    utils.register_all_modules(init_default_scope=False)
    ours = [
        (root, name, thing)
        for root in vars(registry).values()
        if isinstance(root, registry.Registry)
        for name, thing in root.module_dict.items()
        if thing.__module__.startswith('snnet_mm.')
    ]
    names = {name for _, name, _ in ours}
    assert names >= {'PlainViT', 'SNNetv2', 'StitchTestLoop', 'ToyScenes'}
    for root, name, thing in ours:
        child = root.children.get(scope)
        if child is not None:
            assert name not in child.module_dict
            assert child.get(name) is thing
