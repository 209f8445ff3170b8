"""Schedules of trainings that are continued."""

import pytest
from small import write_trained

from snnet_mm.training import run
from snnet_mm.utils import load_config


@pytest.fixture
def cfg(tmp_path):
    """Trains a plain segmentor for four iterations."""
    cfg = load_config(write_trained('seg', tmp_path)[0])
    cfg.optim_wrapper.type = 'OptimWrapper'
    cfg.default_hooks.checkpoint.update(interval=2, max_keep_ckpts=3)
    cfg.train_cfg.max_iters = 4
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, begin=0, end=2, by_epoch=False),
        dict(type='PolyLR', eta_min=0, begin=2, end=4, by_epoch=False),
        dict(type='CosineAnnealingMomentum', T_max=4, by_epoch=False),
    ]
    return cfg


def test_reschedule_hook_continues_exactly(cfg, tmp_path):
    """The steps of a schedule, repeated, give the rates of the whole training."""
    whole = run.train(cfg, tmp_path / 'whole', iters=6)
    options = dict(load_from=str(tmp_path / 'whole/iter_4.pth'))
    resumed = run.train(cfg, tmp_path / 'part', options, iters=6, resume=True)
    assert resumed.iter == whole.iter == 6
    states = [r.model.state_dict() for r in (whole, resumed)]
    assert all(states[0][key].equal(states[1][key]) for key in states[0])
    settings = [r.optim_wrapper.state_dict()['param_groups'] for r in (whole, resumed)]
    assert settings[0] == settings[1]


def rates_of(cfg, folder, **settings):
    """Learning rates of the iterations of a training."""
    options = dict(experiment_name=f'{folder.name}_{len(settings)}')
    runner = run.train(cfg, folder, options, **settings)
    return runner.message_hub.log_scalars['train/lr'].data[0].tolist()


@pytest.mark.parametrize('unit', ['iters', 'epochs'])
def test_reschedule_hook_longer_training(cfg, tmp_path, unit):
    """Its last rates are those of a training that was as long from the start."""
    if unit == 'epochs':
        cfg.train_dataloader.sampler = dict(type='DefaultSampler', shuffle=True)
        cfg.train_dataloader.dataset.num_scenes = 4
        cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=4)
        cfg.default_hooks.checkpoint.update(by_epoch=True)
        cfg.log_processor.by_epoch = True
        for part in cfg.param_scheduler:
            part.by_epoch = True
        cfg.param_scheduler[1].update(convert_to_iter_based=True)
    step = 2 if unit == 'epochs' else 1
    rates_of(cfg, tmp_path / 'a')
    longer = rates_of(cfg, tmp_path / 'b', **{unit: 8})
    continued = rates_of(cfg, tmp_path / 'a', **{unit: 8}, resume=True)
    assert continued[-4 * step :] == longer[4 * step :]
    assert len({*continued[-4 * step :]}) == 4 * step


def test_reschedule_hook_keeps_schedules_by_metrics(cfg, tmp_path):
    plateau = dict(type='ReduceOnPlateauLR', monitor='mIoU', by_epoch=True)
    cfg.param_scheduler = [plateau, *cfg.param_scheduler[1:2]]
    rates_of(cfg, tmp_path / 'a')
    with pytest.raises(ValueError, match='end=4 is invalid'):
        rates_of(cfg, tmp_path / 'a', iters=6, resume=True)
    cfg.param_scheduler = [plateau]
    rate = cfg.optim_wrapper.optimizer.lr
    rates_of(cfg, tmp_path / 'b')
    assert rates_of(cfg, tmp_path / 'b', iters=6, resume=True)[-2:] == [rate, rate]
