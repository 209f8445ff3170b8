"""What is installed holds configs and tools, and configs have names."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from mmengine.config import Config

from snnet_mm.utils import load_config

ROOT = Path(__file__).parents[1]
PAGE = ROOT / 'docs/tutorials/joint_training.md'
STITCHED = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
DERIVED = 'esta/tiny/esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py'
SOURCES = ['LICENSE', 'MANIFEST.in', 'README.md', 'pyproject.toml']
SOURCES += ['setup.py', 'configs', 'requirements', 'snnet_mm', 'tools']


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    """The wheel that is built of the source archive."""
    folder = tmp_path_factory.mktemp('sources')
    for source in (ROOT / name for name in SOURCES):
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / source.name)

    def run(*command):
        subprocess.run([sys.executable, *command], cwd=folder, check=True)

    run('setup.py', '-q', 'sdist', '-d', 'archive')
    (archive,) = (folder / 'archive').iterdir()
    options = '-m pip wheel -q --no-deps --no-index --no-build-isolation'
    run(*options.split(), str(archive))
    return zipfile.ZipFile(next(folder.glob('*.whl')))


@pytest.mark.slow
def test_wheel_has_all_files_and_console_script(wheel):
    expected = {'snnet_mm/py.typed'}
    for folder in ('configs', 'tools'):
        expected |= {
            f'snnet_mm/.mim/{p.relative_to(ROOT)}'
            for p in (ROOT / folder).rglob('*')
            if p.suffix in ('.py', '.yml', '.sh', '.html', '.js')
            and {'__pycache__', 'research'}.isdisjoint(p.parts)
        }
    expected |= {str(p.relative_to(ROOT)) for p in (ROOT / 'snnet_mm').rglob('*.py')}
    assert len(expected) > 400
    assert {n for n in wheel.namelist() if '.dist-info/' not in n} == expected
    (name,) = (n for n in wheel.namelist() if n.endswith('/entry_points.txt'))
    assert b'snnet = snnet_mm.cli:main' in wheel.read(name)


@pytest.mark.slow
def test_load_config_of_installed_package(wheel, tmp_path, monkeypatch):
    wheel.extractall(tmp_path)
    installed = tmp_path / 'snnet_mm'
    for module in ('mmengine.config.config', 'snnet_mm.utils.configs'):
        monkeypatch.setattr(
            f'{module}.get_installed_path', lambda package: str(installed)
        )
    cfg = load_config(f'snnet_mm::{DERIVED}')
    assert cfg.filename == f'{installed}/.mim/configs/{DERIVED}'
    # Base files too are the installed ones.
    base = installed / '.mim/configs/_base_/stitched_cls_runtime.py'
    base.write_text('marked = True')
    assert load_config(f'snnet_mm::{DERIVED}').marked
    assert cfg.to_dict() == Config.fromfile(ROOT / 'configs' / DERIVED).to_dict()


@pytest.mark.parametrize('read', [Config.fromfile, load_config])
def test_joint_training_page_base_is_read_everywhere(tmp_path, read):
    """mmengine itself, and so other packages' tools, know no ``snnet_mm::``."""
    (path,) = re.findall(r'^_base_ = \[(__import__.*)\]', PAGE.read_text(), re.M)
    own = tmp_path / 'own.py'
    name = path.replace('toy/NAME.py', STITCHED)
    own.write_text(f'_base_ = [{name}]\ntrain_cfg = dict(max_iters=4)')
    expected = load_config(f'snnet_mm::{STITCHED}')
    expected.train_cfg.max_iters = 4
    assert read(own).to_dict() == expected.to_dict()


MMSEG = "__import__('mmseg').__path__[0] + '/.mim/configs/_base_/models/"


@pytest.mark.parametrize(
    ('base', 'model'),
    [
        ("'mmdet::_base_/models/mask-rcnn_r50_fpn.py'", 'MaskRCNN'),
        (f"{MMSEG}fcn_r50-d8.py'", 'EncoderDecoder'),
    ],
)
def test_load_config_base_of_other_package(base, model, tmp_path):
    own = tmp_path / 'own.py'
    own.write_text(f'_base_ = [{base}]')
    assert load_config(own).model.type == model
