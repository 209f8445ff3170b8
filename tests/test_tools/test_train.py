import pytest
from small import small


@pytest.mark.parametrize('safe', [True, False])
def test_train_adds_what_is_safe_unless_asked_otherwise(run_here, tmp_path, safe):
    """As the README promises; resumed trainings are exact then."""
    cfg = small('tiny', val=False)
    stock = dict(type='CheckpointHook', by_epoch=False, interval=1)
    cfg.default_hooks.checkpoint = stock
    cfg.dump(tmp_path / 'config.py')
    folder, options = tmp_path / 'work', [] if safe else ['--plain-hooks']
    said = run_here('train.py', tmp_path / 'config.py', '--work-dir', folder, *options)
    assert ('Safe training (--plain-hooks disables it): StitchCheck' in said) is safe
    last, test = said.splitlines()[-2:]
    assert last == f'Checkpoint: {folder}/iter_1.pth'
    arguments = f'{tmp_path}/config.py {folder}/iter_1.pth'
    assert test == f'Next: python tools/test.py {arguments} --stitch-id all'
