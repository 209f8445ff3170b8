from collections import Counter

import pytest
from mmengine.runner import Runner
from watching_hooks import Losses, Recorder, train

from snnet_mm.engine import SandwichSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone


def watched(cfg, iters):
    cfg.train_cfg.max_iters = iters
    runner, recorder, losses = Runner.from_cfg(cfg), Recorder(), Losses()
    runner.register_hook(recorder)
    runner.register_hook(losses)
    runner.train()
    return runner, recorder, losses


def test_losses_are_logged_by_cost_group(toy_cfg):
    runner, recorder, losses = watched(toy_cfg, 5)
    costs = cost_table(runner.model)
    # The toy groups: the fast anchor, three groups of four, the slow anchor.
    groups = [(0,), (4, 12, 14, 6), (3, 13, 7, 10), (2, 8, 9, 11), (1,)]
    names = {
        i: f'loss_by_gflops/{sum(costs[j].flops for j in g) / len(g) / 1e9:.3g}'
        for g in groups
        for i in g
    }
    tags = [names[i] for i in recorder.stitches]
    assert losses.told == list(zip(tags, losses.losses, range(1, 6), strict=True))


def test_the_histogram_counts_across_a_resume(toy_cfg):
    _, first = train(toy_cfg, **{'train_cfg.max_iters': 3})
    runner, second = train(toy_cfg, **{'train_cfg.max_iters': 8, 'resume': True})
    counted = runner.message_hub.get_info('stitch_histogram')
    assert counted == Counter(first.stitches + second.stitches)
    assert sum(counted.values()) == 8


def test_every_stitch_of_a_sandwich_is_logged(toy_cfg):
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    toy_cfg.default_hooks.stitch_sampling.sampler = dict(
        type='SandwichSampler', num_random=2
    )
    runner, recorder, losses = watched(toy_cfg, 3)
    costs = cost_table(runner.model)
    sampler = SandwichSampler(
        costs, find_stitched_backbone(runner.model).space, num_random=2, seed=0
    )
    drawn = [sampler.sample(t) for t in range(3)]
    assert runner.message_hub.get_info('stitch_histogram') == Counter(
        i for ids in drawn for i in ids
    )
    gflops = [sum(costs[i].flops for i in ids) / 1e9 for ids in drawn]
    assert recorder.logged == pytest.approx(gflops)
    # Four losses an iteration, which add up to what was trained.
    assert [step for *_, step in losses.told] == [1] * 4 + [2] * 4 + [3] * 4
    sums = [sum(v for _, v, step in losses.told if step == n + 1) for n in range(3)]
    assert sums == pytest.approx(losses.losses)
    slowest, fastest = losses.told[0], losses.told[1]
    assert slowest[0] == f'loss_by_gflops/{costs[1].flops / 1e9:.3g}'
    assert fastest[0] == f'loss_by_gflops/{costs[0].flops / 1e9:.3g}'
