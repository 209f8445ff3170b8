"""Whatever trains through tools/train.py is safe."""

import pytest
from equality import assert_same
from mmengine.config import Config
from mmengine.hooks import CheckpointHook
from tiny import tiny_config

from snnet_mm.utils import load_weights_only, make_safe


def stock_config():
    """As mm's own: stock hooks, loaders without seeds, and no seed of the run."""
    cfg = tiny_config()
    hooks = cfg.default_hooks
    names = 'exact_resume', 'label_check', 'loss_check', 'trainable_params'
    for name in (*names, 'stitch_report'):
        del hooks[name]
    hooks.checkpoint = dict(type='CheckpointHook', by_epoch=False, interval=1)
    hooks.checkpoint.max_keep_ckpts = 2
    loader = cfg.train_dataloader
    loader.dataset.type = loader.dataset.pop('of')
    loader.sampler = dict(type='InfiniteSampler', shuffle=True)
    cfg.pop('randomness')
    return cfg


def test_stock_hooks_give_way_to_safe_ones():
    cfg = stock_config()
    assert make_safe(cfg) == [
        'StitchCheckpointHook', 'ExactResumeHook', 'SeededDataset and SeededSampler',
        'randomness.seed=0', 'LabelCheckHook', 'LossCheckHook',
    ]  # fmt: skip
    wanted = dict(type='StitchCheckpointHook', by_epoch=False, interval=1)
    assert cfg.default_hooks.checkpoint == dict(wanted, max_keep_ckpts=2)
    loader = cfg.train_dataloader
    sampler = dict(type='SeededSampler', of='InfiniteSampler', shuffle=True)
    assert (loader.sampler, loader.dataset.of) == (sampler, 'ToyScenes')
    before = cfg.to_dict()
    assert make_safe(cfg) == []
    assert cfg.to_dict() == before
    assert make_safe(tiny_config()) == []


@pytest.mark.parametrize(
    'hooks, checkpoint',
    [
        (None, dict(type='StitchCheckpointHook', interval=1)),
        (
            dict(checkpoint=dict(type=CheckpointHook, save_best='auto')),
            dict(type='StitchCheckpointHook', interval=-1, save_best='auto'),
        ),
        (dict(checkpoint=None), None),
        (dict(checkpoint=dict(type='MyHook')), dict(type='MyHook')),
    ],
)
def test_settings_of_checkpoints_stay(hooks, checkpoint):
    loader = dict(dataset=dict(type='A'), sampler=dict(type='MySampler'))
    model = dict(language_model=dict())
    cfg = dict(model=model, train_dataloader=loader, default_hooks=hooks)
    cfg |= dict(custom_hooks=[dict(type='EMAHook')], randomness=dict(seed=3))
    cfg = Config(cfg)
    make_safe(cfg)
    assert cfg.default_hooks.get('checkpoint') == checkpoint
    assert cfg.default_hooks.keys() <= {'checkpoint', 'exact_resume', 'loss_check'}
    assert cfg.train_dataloader == loader
    assert cfg.randomness.seed == 3


def test_a_stock_config_resumes_exactly(run_here, tmp_path, capsys):
    """What README promises; --plain-hooks leaves the config as it is."""
    cfg = stock_config()
    cfg.dump(tmp_path / 'config.py')

    def run(folder, iters, *options):
        args = '--cfg-options', f'train_cfg.max_iters={iters}', 'log_level=ERROR'
        args += (f'experiment_name={folder}{iters}',)
        folder = '--work-dir', tmp_path / folder
        return run_here('train.py', tmp_path / 'config.py', *folder, *options, *args)

    said = run('straight', 4)
    assert said.count('Safe training (--plain-hooks leaves it out): StitchCheck') == 1
    last, test = said.splitlines()[-2:]
    assert last == f'Checkpoint: {tmp_path / "straight" / "iter_4.pth"}'
    arguments = f'{tmp_path}/straight/config.py {tmp_path}/straight/iter_4.pth'
    assert test == f'Next: python tools/test.py {arguments} --stitch-id all'
    assert 'Safe training' in run('cut', 2)
    run('cut', 4, '--resume')
    paths = (tmp_path / name / 'iter_4.pth' for name in ('straight', 'cut'))
    straight, cut = map(load_weights_only, paths)
    assert_same(straight['state_dict'], cut['state_dict'])
    assert_same(straight['optimizer'], cut['optimizer'])
    with pytest.raises(ValueError, match='max_iters=-1'):
        run('plain', -1, '--plain-hooks')
    assert 'Safe training' not in capsys.readouterr().out


def test_fine_tuning_resumes_its_own_checkpoint(run_here, tmp_path):
    """Not the one that it began with, unless that is named to be resumed."""
    cfg, first = tiny_config(), str(tmp_path / 'first' / 'iter_1.pth')

    def run(folder, iters, load_from=None, *options):
        cfg.load_from, cfg.train_cfg.max_iters = load_from, iters
        cfg.experiment_name = f'{folder}_tuned_{iters}'
        cfg.dump(tmp_path / 'config.py')
        args = tmp_path / 'config.py', '--work-dir', tmp_path / folder, *options
        run_here('train.py', *args)
        counts = load_weights_only(tmp_path / folder / f'iter_{iters}.pth')
        return sum(counts['message_hub']['runtime_info']['stitch_histogram'].values())

    run('first', 1)
    assert run('tuned', 1, first, '--resume') == 1  # from its weights
    assert run('tuned', 3, first, '--resume') == 3
    named = f'load_from={first}'
    assert run('on', 2, first, '--resume', '--cfg-options', named) == 2
    assert not (tmp_path / 'on' / 'iter_1.pth').exists()
