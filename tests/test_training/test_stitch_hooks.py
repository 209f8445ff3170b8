import copy
from collections import Counter

import pytest
import torch
from equality import assert_same
from mmengine.hooks import EMAHook
from mmengine.registry import DATA_SAMPLERS
from mmengine.runner import Runner
from small import small
from torch.utils.data import BatchSampler
from watching_hooks import in_folder, train

from snnet_mm.costs import cost_table
from snnet_mm.models import find_stitched_backbone
from snnet_mm.training import StitchInitHook, StitchSamplingHook, stitch_hooks
from snnet_mm.utils import load_weights_only


@pytest.fixture
def cfg(tmp_path):
    """Trains for two iterations."""
    cfg = small('tiny', tmp_path, val=False)
    cfg.train_cfg.max_iters = 2
    return cfg


def layers_of(state):
    return {k: v for k, v in state.items() if 'stitching_layers' in k}


@DATA_SAMPLERS.register_module()
class GroupingSampler(BatchSampler):
    """As mmdet's AspectRatioBatchSampler: the loader knows no batch size."""

    def __init__(self, sampler, batch_size):
        super().__init__(sampler, batch_size, drop_last=False)


def average_of(runner):
    """The stitched backbone in a model average."""
    hook = next(h for h in runner.hooks if isinstance(h, EMAHook))
    return find_stitched_backbone(hook.ema_model)


def test_stitch_init_hook_least_squares_before_training(cfg):
    cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    runner, recorder = train(cfg)
    for model in (find_stitched_backbone(runner.model), average_of(runner)):
        assert model.stitching_initialized
    # The base maps stay frozen; the low-rank updates start at zero, and are trained
    # as the biases are.
    for key, start in layers_of(recorder.start).items():
        if key.endswith('weight'):
            assert torch.equal(start, runner.model.state_dict()[key])
        if key.endswith('lora_B'):
            assert not start.any()
    # Fitting again on the very same images gives the same maps, in any groups.
    hook = next(h for h in runner.hooks if isinstance(h, StitchInitHook))
    cfg.train_dataloader.batch_sampler = dict(type='GroupingSampler')
    fresh = Runner.from_cfg(cfg)
    fresh._hooks = [h for h in fresh.hooks if isinstance(h, EMAHook)]
    fresh.call_hook('before_run')  # the average has random layers
    fresh.model.load_state_dict(recorder.start)
    fresh.model.backbone.stitching_initialized.fill_(False)
    assert fresh.train_dataloader.batch_size is None
    state = torch.get_rng_state()
    hook.before_train(fresh)
    assert torch.equal(torch.get_rng_state(), state)
    fitted, wanted = (layers_of(s) for s in (fresh.model.state_dict(), recorder.start))
    torch.testing.assert_close(fitted, wanted, rtol=1e-4, atol=1e-5)
    averaged = average_of(fresh).state_dict()
    assert_same({k: averaged[k.removeprefix('backbone.')] for k in fitted}, fitted)


def test_stitch_init_hook_keeps_random_and_loaded_layers(cfg, caplog):
    """And anchors with random weights are said once, if nothing is loaded."""
    words = 'These anchors start from random weights: fast, slow.'
    cfg.default_hooks.stitch_init.method = 'kaiming'
    built = copy.deepcopy(layers_of(Runner.from_cfg(cfg).model.state_dict()))
    runner, recorder = train(cfg, handler=caplog.handler)
    assert_same(layers_of(recorder.start), built)
    # torch gives a linear layer no weight beyond one over the root of its width.
    for key, weight in built.items():
        if key.endswith('.weight'):
            bound = weight.shape[1] ** -0.5
            assert 0.8 * bound < weight.abs().max() <= bound
    assert find_stitched_backbone(runner.model).stitching_initialized
    assert caplog.text.count(words) == 1

    caplog.clear()
    loaded = dict(load_from=f'{cfg.work_dir}/iter_2.pth')
    trained = layers_of(load_weights_only(loaded['load_from'])['state_dict'])
    cfg.default_hooks.stitch_init.method = 'least-squares'
    _, recorder = train(in_folder(cfg, 'next', **loaded), handler=caplog.handler)
    assert_same(layers_of(recorder.start), trained)
    assert words not in caplog.text


def test_stitch_sampling_hook_costs_are_of_first_image(cfg):
    costs = cost_table(Runner.from_cfg(cfg).model)
    cfg.model.data_preprocessor.update(size=None, size_divisor=32)
    runner = Runner.from_cfg(cfg)
    hook = stitch_hooks.sampling_hook(runner)
    hook.before_train(runner)
    assert hook.sampler.costs == costs


def test_stitch_init_hook_checks_parts_before_the_fit(cfg, caplog):
    """Heads, and parts that are asked about the space."""

    class Picky(torch.nn.Module):
        def check_space(self, space):
            raise ValueError(f'not for {len(space)} stitches')

    cfg.model.decode_head.in_channels = 40
    cfg.log_level = 'INFO'
    runner = Runner.from_cfg(cfg)
    runner.logger.addHandler(caplog.handler)
    with pytest.raises(ValueError, match='in_channels.* RuntimeError: .*40'):
        runner.train()
    assert 'Fitted' not in caplog.text
    runner.model.picky = Picky()
    with pytest.raises(ValueError, match='not for 4 stitches'):
        stitch_hooks.sampling_hook(runner).before_train(runner)


def test_stitch_sampling_hook_counts_stitches_of_a_sandwich(cfg):
    cfg.model = dict(type='SandwichWrapper', model=cfg.model)
    cfg.default_hooks.stitch_sampling.sampler = dict(
        type='SandwichSampler', num_random=2
    )
    cfg.train_cfg.max_iters = 3
    runner, recorder = train(cfg)
    costs = cost_table(runner.model)
    drawn = [stitch_hooks.sampling_hook(runner).sampler.sample(t) for t in range(3)]
    assert runner.message_hub.get_info('stitch_histogram') == Counter(
        i for ids in drawn for i in ids
    )
    gflops = [sum(costs[i].flops for i in ids) / 1e9 for ids in drawn]
    assert recorder.logged == pytest.approx(gflops)


SIZES = (16, 24), (32, 32)


@pytest.mark.slow
def test_stitch_sampling_hook_draws_sizes_like_stitches(cfg):
    cfg.default_hooks.checkpoint.max_keep_ckpts = -1
    cfg.default_hooks.stitch_sampling.sizes = SIZES
    cfg.train_cfg.max_iters = 6
    runner, recorder = train(cfg)
    hook = stitch_hooks.sampling_hook(runner)
    assert {*recorder.sizes} == {*SIZES}
    assert recorder.stitches == [hook.sampler.sample(t)[0] for t in range(6)]
    tables = {size: cost_table(runner.model, size) for size in SIZES}
    steps = zip(recorder.sizes, recorder.stitches, strict=True)
    gflops = [tables[size][i].flops / 1e9 for size, i in steps]
    assert recorder.logged == pytest.approx(gflops)
    # Whatever follows a training, as a validation does, sees images as they are.
    assert find_stitched_backbone(runner.model).input_size is None

    # Exactly resumed, from half the way.
    resumed = dict(load_from=f'{cfg.work_dir}/iter_3.pth', resume=True)
    again, rest = train(cfg, **resumed)
    assert rest.sizes == recorder.sizes[3:]
    assert_same(again.model.state_dict(), runner.model.state_dict())


def test_ranks_of_other_stitches_synchronise_no_batch_norm_of_the_backbone(
    cfg, monkeypatch
):
    cfg.default_hooks.stitch_sampling.sampler = dict(
        type='UniformSampler', per_rank=True
    )
    cfg.model.decode_head.norm_cfg = dict(type='BN')
    runner = Runner.from_cfg(cfg)
    (hook,) = (h for h in runner.hooks if isinstance(h, StitchSamplingHook))
    sync, model = torch.nn.SyncBatchNorm(8), runner.model
    model.decode_head.extra, where = sync, 'anchors.0.extra'
    monkeypatch.setattr(stitch_hooks, 'get_world_size', lambda: 2)
    hook.before_train(runner)  # every stitch runs the head
    model.backbone.anchors[0].extra = sync
    with pytest.raises(ValueError, match=f'per_rank=True .*BN in backbone.{where}'):
        hook.before_train(runner)
    monkeypatch.setattr(stitch_hooks, 'get_world_size', lambda: 1)
    hook.before_train(runner)
