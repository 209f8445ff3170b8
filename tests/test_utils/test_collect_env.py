from importlib import import_module, metadata
from types import SimpleNamespace

import mmengine
import pytest
import torch

import snnet_mm
from snnet_mm.utils import collect_env as module
from snnet_mm.utils.collect_env import collect_env, collision_warnings, main


@pytest.fixture
def fake(monkeypatch):
    """Pretends that distributions are installed and that imports give versions."""

    def pretend(installed, imported):
        def version(distribution):
            if distribution not in installed:
                raise metadata.PackageNotFoundError(distribution)
            return installed[distribution]

        def load(name):
            found = imported.get(name)
            if isinstance(found, Exception):
                raise found
            if found is None:
                raise ModuleNotFoundError(f'No module named {name!r}', name=name)
            return SimpleNamespace(__version__=found)

        monkeypatch.setattr(module.metadata, 'version', version)
        monkeypatch.setattr(module, 'import_module', load)

    return pretend


MAINTAINED = {'onedl-mmengine': '0.10.12', 'onedl-mmcv': '2.3.6'}


def test_one_distribution_each_is_no_collision(fake):
    fake(MAINTAINED, dict(mmengine='0.10.12', mmcv='2.3.6'))
    assert collision_warnings() == []
    env = collect_env()
    assert env['mmengine'] == '0.10.12 (onedl-mmengine)'
    assert env['mmcv'] == '2.3.6 (onedl-mmcv)'
    assert env['mmdet'] == 'not installed (no distribution)'
    assert env['timm'] == 'not installed'
    assert env["mmcv's ops"] == "not compiled (No module named 'mmcv._ext')"


@pytest.mark.parametrize(
    'imported, wins',
    [
        ('2.2.0', '2.2.0, that is mmcv. '),
        ('2.3.6', '2.3.6, that is onedl-mmcv. '),
        ('1.0', '1.0, that is files of unclear origin. '),
        (
            AssertionError('too new'),
            'broken: AssertionError: too new, that is files of unclear origin. ',
        ),
    ],
)
def test_a_collision_is_explained(fake, imported, wins):
    installed = MAINTAINED | {'mmcv': '2.2.0'}
    fake(installed, dict(mmengine='0.10.12', mmcv=imported))
    (warning,) = collision_warnings()
    assert warning == (
        'mmcv 2.2.0 and onedl-mmcv 2.3.6 are installed together, and each is imported '
        "as mmcv: they overwrote each other's files. 'import mmcv' gives "
        f'{wins}To fix it: pip uninstall -y mmcv onedl-mmcv && pip install -c '
        'requirements/constraints.txt onedl-mmcv'
    )


def test_every_collision_is_found(fake, capsys):
    installed = {d: '1' for names in module.DISTRIBUTIONS.values() for d in names}
    fake(installed, dict.fromkeys(module.DISTRIBUTIONS, '1'))
    warnings = collision_warnings()
    assert [w.split("'import ")[1].split("'")[0] for w in warnings] == [
        'mmengine',
        'mmcv',
        'mmseg',
        'mmdet',
        'mmpretrain',
    ]
    assert all('files of unclear origin' in w for w in warnings)
    main()
    assert capsys.readouterr().out.count('\nWARNING: ') == 5


def test_a_dependency_that_is_missing_is_not_the_package(fake):
    error = ModuleNotFoundError("No module named 'ftfy'", name='ftfy')
    fake({'onedl-mmseg': '1.4.2'}, dict(mmseg=error, mmcv='2.3.6'))
    env = collect_env()
    assert env['mmseg'] == "broken: No module named 'ftfy' (no distribution)"


def test_compiled_ops_are_seen(fake):
    fake(MAINTAINED, {'mmcv': '2.3.6', 'mmcv._ext': 'a library'})
    assert collect_env()["mmcv's ops"] == 'compiled'


def test_this_environment():
    env = collect_env()
    assert env['snnet_mm'] == snnet_mm.__version__
    assert env['PyTorch'] == torch.__version__
    assert env['CUDA available'] == str(torch.cuda.is_available())
    assert env['mmengine'].startswith(f'{mmengine.__version__} (')
    assert 'Python' in env
    assert 'PyTorch compiling details' not in env
    try:
        import_module('mmcv._ext')
    except ImportError:
        assert env["mmcv's ops"].startswith('not compiled')
    else:
        assert env["mmcv's ops"] == 'compiled'
