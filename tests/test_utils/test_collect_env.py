from importlib import metadata

from snnet_mm.utils.collect_env import collect_env


def test_two_distributions_of_one_package(monkeypatch):
    """Each overwrote files of the other, which no error tells."""
    both = dict(mmcv=['onedl-mmcv', 'mmcv', 'mmcv'], mmseg=['mmsegmentation'])
    monkeypatch.setattr(metadata, 'packages_distributions', lambda: both)
    env = collect_env()
    assert '(mmcv, onedl-mmcv); WARNING: their files are mixed.' in env['mmcv']
    assert 'pip uninstall -y mmcv onedl-mmcv, and' in env['mmcv']
    assert env['mmseg'].endswith('(mmsegmentation)')
