"""FlexibleRunner on two processes: DDP and FSDP train, save, resume and validate."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.costs import cost_table
from snnet_mm.models import find_stitched_backbone, gathered
from snnet_mm.utils import closing_process_group, load_weights_only

pytestmark = pytest.mark.slow
DDP = dict(type='DDPStrategy', model_wrapper=dict(device_ids=None))
DDP['model_wrapper'] |= dict(broadcast_buffers=False, find_unused_parameters=True)
STRATEGIES = dict(ddp=DDP, fsdp=dict(type='StitchFSDPStrategy'))


class Watch(Hook):
    """Keeps the metrics, and the costs of the whole model."""

    def after_val_epoch(self, runner, metrics=None):
        self.metrics = metrics
        with gathered(runner.model):
            self.costs = cost_table(runner.model)


def build(folder, iters, strategy=None, **changes):
    cfg = tiny_config()
    cfg.merge_from_dict(changes)
    cfg.work_dir = str(folder)
    cfg.experiment_name = cfg.visualizer.name = str(folder) + str(iters)
    cfg.train_cfg.update(max_iters=iters, val_interval=2)
    cfg.default_hooks.checkpoint.interval = 2
    cfg.optim_wrapper.pop('clip_grad', None)
    if strategy is None:
        return Runner.from_cfg(cfg)
    cfg.update(runner_type='FlexibleRunner', launcher='pytorch', strategy=strategy)
    return RUNNERS.build(cfg)


def train(*args, **changes):
    runner, watch = build(*args, **changes), Watch()
    runner.register_hook(watch)
    runner.train()
    stitched = find_stitched_backbone(runner.model)
    return dict(metrics=watch.metrics, costs=watch.costs, space=stitched.space.ids)


def on_rank(rank, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
    store = f'file://{folder}/store'
    dist.init_process_group('gloo', store, rank=rank, world_size=2)
    seen = {}
    with closing_process_group():
        for name, strategy in STRATEGIES.items():
            seen[name] = train(folder / name, 4, strategy)
            train(folder / f'{name}_cut', 2, strategy)
            train(folder / f'{name}_cut', 4, strategy, resume=True)
    torch.save(seen, folder / f'{rank}.pth')


def weights_of(path):
    state = load_weights_only(path)['state_dict']
    return {k.removeprefix('module.'): v for k, v in state.items()}


def test_flexible_runner_trains_saves_resumes_and_validates(tmp_path):
    mp.start_processes(on_rank, (tmp_path,), nprocs=2, start_method='fork')
    first, second = (
        torch.load(tmp_path / f'{r}.pth', weights_only=False) for r in (0, 1)
    )
    assert first['fsdp'] == second['fsdp']
    single = build(tmp_path / 'single', 4)
    assert first['fsdp']['costs'] == first['ddp']['costs'] == cost_table(single.model)
    assert first['fsdp']['metrics'] == pytest.approx(first['ddp']['metrics'], abs=0.2)
    weights = {name: weights_of(tmp_path / name / 'iter_4.pth') for name in STRATEGIES}
    for name in STRATEGIES:
        resumed = weights_of(tmp_path / f'{name}_cut' / 'iter_4.pth')
        torch.testing.assert_close(resumed, weights[name], rtol=1e-4, atol=1e-6)
    # Blocks that no stitch has run are as they were; the root's zeros move the others.
    blocks = [{k: v for k, v in w.items() if 'blocks' in k} for w in weights.values()]
    # Adam takes whole steps along gradients that are nought but for rounding.
    torch.testing.assert_close(*blocks, rtol=1e-3, atol=1e-4)
    single.model.load_state_dict(weights['fsdp'])
    assert single.test().keys() == first['fsdp']['metrics'].keys()
