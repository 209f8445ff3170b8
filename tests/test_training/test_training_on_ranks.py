"""Two processes on a CPU train as one."""

import copy
import runpy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import rank_hooks  # noqa: F401
import torch
import torch.distributed as dist
from equality import assert_same
from launching import ROOT
from mmengine.model import MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from ranks import run_ranks
from small import ToyClassifier, small

from snnet_mm.costs import cost_table
from snnet_mm.esta import ImportanceSampler
from snnet_mm.models import (
    SandwichWrapper,
    fit_stitching_layers,
    set_stitch,
    set_stitches,
)
from snnet_mm.training import UniformSampler

STITCHES = 0, 2, 1
SANDWICH = 1, 0, 5, 7  # the slowest anchor of a 3/7 space first


def layers_of(state):
    """The least-squares maps in a state dict; their weights stay frozen."""
    ends = 'weight', 'bias'
    return {k: v for k, v in state.items() if 'stitching_l' in k and k.endswith(ends)}


@pytest.fixture
def cfg(tmp_path):
    """Four iterations with SyncBN; ranks initialise their models differently."""
    cfg = small('tiny')
    cfg.work_dir = str(tmp_path)
    cfg.custom_imports.imports.append('rank_hooks')
    cfg.custom_hooks = [dict(type='RankRecorder')]
    cfg.default_hooks.stitch_init.num_images = 7
    cfg.randomness = dict(seed=0, diff_rank_seed=True)
    cfg.train_cfg.update(max_iters=4, val_interval=4)
    cfg.default_hooks.checkpoint.interval = 4
    cfg.model.decode_head.norm_cfg.type = 'SyncBN'
    # Random images would depend on the number of ranks.
    cfg.train_dataloader.dataset.update(pipeline=[dict(type='PackSegInputs')])
    cfg.train_dataloader.dataset.num_scenes = 12
    # Padded to six by two ranks; one by one, batches cannot differ.
    cfg.test_dataloader.update(batch_size=1)
    cfg.test_dataloader.dataset.num_scenes = 5
    cfg.val_dataloader = copy.deepcopy(cfg.test_dataloader)
    cfg.val_cfg = dict(type='StitchValLoop', stitches=STITCHES)
    return cfg


def train_on_two_ranks(cfg, folder):
    """Train by ``tools/train.py`` in two processes; return what each recorded."""
    config, tool = folder.with_suffix('.py'), str(ROOT / 'tools/train.py')
    cfg.dump(config)

    def train(rank):
        sys.argv = [tool, str(config), '--launcher=pytorch', '--work-dir', str(folder)]
        runpy.run_path(tool, run_name='__main__')

    run_ranks(2, train, folder)
    return [torch.load(folder / f'rank_{rank}.pth') for rank in (0, 1)]


@pytest.mark.slow
def test_train_two_ranks_train_and_validate_as_one(cfg, tmp_path):
    folder = tmp_path / 'two'
    ranks = train_on_two_ranks(cfg, folder)
    # Parameters and, after a validation, buffers of two ranks are equal.
    for key in ('start', 'end', 'metrics', 'stitches'):
        assert_same(*(rank[key] for rank in ranks))
    start, end = ranks[0]['start'], ranks[0]['end']
    changed = {k for k, v in start.items() if not v.equal(end[k])}
    for part in ('anchors.0', 'anchors.1', 'lora', 'running_mean'):
        assert any(part in k for k in changed)
    assert len(set(ranks[0]['stitches'])) > 1
    # One process, with rank 0's seed, sees the images of both.
    alone = copy.deepcopy(cfg)
    alone.work_dir, alone.train_cfg.max_iters = str(tmp_path / 'one'), 1
    alone.val_dataloader = alone.val_evaluator = alone.val_cfg = None
    del alone.default_hooks['stitch_statistics']
    Runner.from_cfg(alone).train()
    one = torch.load(tmp_path / 'one' / 'rank_0.pth')
    assert ranks[0]['stitches'][:1] == one['stitches']
    maps = layers_of(start)
    assert len(maps) == 6
    assert not [k for k in maps if k.endswith('weight') and k in changed]
    for key, expected in layers_of(one['start']).items():
        assert (maps[key] - expected).norm() < 1e-6 * expected.norm(), key
    cfg.load_from, cfg.work_dir = str(folder / 'iter_4.pth'), str(tmp_path)
    runner = Runner.from_cfg(cfg)
    assert runner.val() == pytest.approx(ranks[0]['metrics'])
    assert [rank['saved'] for rank in ranks] == [[4, 4], []]  # again with statistics
    assert len({v for k, v in ranks[0]['metrics'].items() if 'mIoU' in k}) == 3


def images_of(iteration, rank):
    rng = np.random.default_rng([iteration, rank])
    return torch.from_numpy(rng.standard_normal((2, 3, 32, 32), dtype='float32'))


def step(nets, optimizer, images):
    """One optimizer step for the mean loss of networks, each on its own images."""
    optimizer.zero_grad()
    losses = [net(x)[0].square().mean() for net, x in zip(nets, images, strict=True)]
    (sum(losses) / len(losses)).backward()
    optimizer.step()


def gradients_of(model):
    return {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


def errors_of_fits(rank, net):
    """Messages without images anywhere, and with a NaN on the second rank alone."""
    errors = []
    for batches in ([], [images_of(0, rank) / (1 - rank)]):
        try:
            fit_stitching_layers(copy.deepcopy(net), batches)
        except ValueError as error:
            errors.append(str(error))
    return errors


def step_of_a_sandwich(rank, net, optimizer):
    """Several stitches in one forward: their gradients, and what is important."""
    sandwich = SandwichWrapper(ToyClassifier(net), alpha=0.5)
    record = dict(head=copy.deepcopy(sandwich.head.state_dict()))
    ddp = MMDistributedDataParallel(sandwich, find_unused_parameters=True)
    set_stitches(ddp, SANDWICH)
    losses = ddp(images_of(9, rank), torch.tensor([rank, 4]), mode='loss')
    optimizer.zero_grad()
    ddp.module.parse_losses(losses)[0].backward()
    record['gradients'] = copy.deepcopy(gradients_of(sandwich))
    scores = ImportanceSampler(cost_table(net, (32, 32)), warm_up=1)
    (hook,), hub = scores.hooks(), SimpleNamespace(runtime_info={})
    parts = dict(model=sandwich, optim_wrapper=OptimWrapper(optimizer), message_hub=hub)
    hook.before_train(SimpleNamespace(**parts))
    hook.trained = list(sandwich.roles.values())
    optimizer.step()
    return record | dict(scores=scores.state_dict())


def on_rank(rank, folder, net):
    dist.init_process_group('gloo')
    record = dict(errors=errors_of_fits(rank, net), stitches=[])
    # The second rank has no images, the first one all.
    net = copy.deepcopy(net)
    fit_stitching_layers(net, [images_of(0, r) for r in (0, 1) if rank == 0])
    record['fitted'] = copy.deepcopy(net.state_dict())
    ddp = MMDistributedDataParallel(net, find_unused_parameters=True)
    sampler = UniformSampler(cost_table(net, (32, 32)), per_rank=True)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
    for t in range(3):
        record['stitches'] += sampler.sample(t)
        set_stitch(ddp, record['stitches'][-1])
        step([ddp], optimizer, [images_of(t, rank)])
    record['end'] = copy.deepcopy(net.state_dict())
    record |= step_of_a_sandwich(rank, net, optimizer)
    torch.save(record, f'{folder}/{rank}.pth')
    dist.destroy_process_group()


@pytest.mark.slow
def test_ranks_with_other_images_and_stitches_agree(build_snnet, tmp_path):
    net = build_snnet(plugins=dict(stitch_biases=dict(type='StitchBiases')))
    run_ranks(2, lambda rank: on_rank(rank, tmp_path, net), tmp_path)
    ranks = [torch.load(tmp_path / f'{rank}.pth') for rank in (0, 1)]
    for record in ranks:
        nothing, not_finite = record['errors']
        assert 'images to fit the stitching layers to' in nothing
        assert 'finite activations' in not_finite
    for key in ('fitted', 'end', 'gradients', 'scores'):
        assert_same(*(rank[key] for rank in ranks))
    drawn = list(zip(ranks[0]['stitches'], ranks[1]['stitches'], strict=True))
    assert any(a != b for a, b in drawn)
    assert set(ranks[0]['scores']['scores']) == set(SANDWICH)

    # One process trains both stitches of an iteration together.
    fit_stitching_layers(net, [images_of(0, rank) for rank in (0, 1)])
    assert_same(dict(ranks[0]['fitted']), dict(net.state_dict()))
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
    for t, pair in enumerate(drawn):

        def run(images, stitch_id):
            set_stitch(net, stitch_id)
            return net(images)

        nets = [lambda x, i=i: run(x, i) for i in pair]
        step(nets, optimizer, [images_of(t, rank) for rank in (0, 1)])
    torch.testing.assert_close(
        dict(net.state_dict()), dict(ranks[0]['end']), rtol=1e-4, atol=1e-6
    )

    # The gradients of a sandwich are means over all images.
    net.load_state_dict(ranks[0]['end'])
    net.zero_grad()
    sandwich = SandwichWrapper(ToyClassifier(net), alpha=0.5)
    sandwich.head.load_state_dict(ranks[0]['head'])
    set_stitches(sandwich, SANDWICH)
    for rank in (0, 1):
        losses = sandwich(images_of(9, rank), torch.tensor([rank, 4]), mode='loss')
        (sandwich.parse_losses(losses)[0] / 2).backward()
    found = ranks[0]['gradients']
    torch.testing.assert_close(found, gradients_of(sandwich), rtol=1e-3, atol=1e-5)
    for part in ('anchors.0', 'anchors.1', 'lora_B', 'head'):
        assert any(part in name and g.any() for name, g in found.items())
