import copy
from collections import Counter

import pytest
import torch
from equality import assert_same
from mmengine.hooks import EMAHook
from mmengine.registry import DATA_SAMPLERS
from mmengine.runner import Runner
from torch.utils.data import BatchSampler
from watching_hooks import Recorder, in_folder, train

from snnet_mm.costs import cost_table
from snnet_mm.models import find_stitched_backbone, set_input_size
from snnet_mm.training import StitchInitHook, stitch_hooks
from snnet_mm.utils import load_weights_only


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


def test_least_squares_sets_the_layers_before_training(toy_cfg):
    toy_cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    runner, recorder = train(toy_cfg)
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
    toy_cfg.train_dataloader.batch_sampler = dict(type='GroupingSampler')
    fresh = Runner.from_cfg(toy_cfg)
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


def test_random_layers_stay_as_they_were_built_and_loaded_ones_are_kept(toy_cfg):
    toy_cfg.default_hooks.stitch_init.method = 'kaiming'
    toy_cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    recorder = Recorder()
    runner = Runner.from_cfg(toy_cfg)
    built = copy.deepcopy(layers_of(runner.model.state_dict()))
    runner.register_hook(recorder)
    runner.train()
    assert_same(layers_of(recorder.start), built)
    # torch gives a linear layer no weight beyond one over the root of its width.
    for key, weight in built.items():
        if key.endswith('.weight'):
            bound = weight.shape[1] ** -0.5
            assert 0.9 * bound < weight.abs().max() <= bound
    assert find_stitched_backbone(runner.model).stitching_initialized
    assert average_of(runner).stitching_initialized

    toy_cfg.load_from = f'{toy_cfg.work_dir}/iter_2.pth'
    trained = layers_of(load_weights_only(toy_cfg.load_from)['state_dict'])
    toy_cfg.work_dir += '/next'
    toy_cfg.default_hooks.stitch_init.method = 'least-squares'
    toy_cfg.custom_hooks = []
    _, recorder = train(toy_cfg)
    assert_same(layers_of(recorder.start), trained)


# --- sampling


def test_costs_are_of_the_first_image(toy_cfg, caplog):
    costs = cost_table(Runner.from_cfg(toy_cfg).model)
    toy_cfg.model.data_preprocessor.update(size=None, size_divisor=32)
    toy_cfg.log_level = 'INFO'
    runner = Runner.from_cfg(toy_cfg)
    runner.logger.addHandler(caplog.handler)
    hook = stitch_hooks.sampling_hook(runner)
    hook.before_train(runner)
    assert hook.sampler.costs == costs
    assert 'Costs are counted at 64x64, that of the first image' in caplog.text


def test_random_anchors_are_said_once(toy_cfg, caplog):
    """Unless a checkpoint of them, of the model, or of a whole training is loaded."""
    words = 'These anchors start from random weights: '
    toy_cfg.log_level = 'INFO'
    runner, _ = train(toy_cfg, handler=caplog.handler)
    said = [m for m in caplog.messages if m.startswith(words)]
    assert said[0].startswith(f'{words}fast, slow. They have no init_cfg of type Pr')
    assert len(said) == 1
    caplog.clear()
    checkpoint = f'{toy_cfg.work_dir}/iter_2.pth'
    for name, changes in dict(loaded=dict(load_from=checkpoint)).items():
        train(in_folder(toy_cfg, name, **changes), handler=caplog.handler)
    assert words not in caplog.text
    model, pretrained = runner.model, dict(type='Pretrained', checkpoint=checkpoint)
    backbone = model.backbone
    for part, left in (
        *((backbone.anchors[0], ['slow']), (backbone.anchors[1].blocks[0], ['fast'])),
        *((model, []), (backbone, []), (model.decode_head, ['fast', 'slow'])),
    ):
        before, part.init_cfg = getattr(part, 'init_cfg', None), [pretrained]
        assert stitch_hooks.random_anchors(model) == left
        part.init_cfg = before


def test_auxiliary_heads_are_checked_before_the_fit(toy_cfg, caplog):
    head = dict(toy_cfg.model.decode_head, in_channels=40)
    toy_cfg.model.auxiliary_head = [head]
    toy_cfg.log_level = 'INFO'
    runner = Runner.from_cfg(toy_cfg)
    runner.logger.addHandler(caplog.handler)
    key = r'model.auxiliary_head\[0\].in_channels'
    with pytest.raises(ValueError, match=f'in_channels=40 is invalid.*{key}'):
        runner.train()
    assert 'Fitted' not in caplog.text


def test_parts_of_the_model_are_asked_about_the_space(toy_cfg):
    class Picky(torch.nn.Module):
        def check_space(self, space):
            raise ValueError(f'not for {len(space)} stitches')

    runner = Runner.from_cfg(toy_cfg)
    runner.model.picky = Picky()
    with pytest.raises(ValueError, match='not for 14 stitches'):
        stitch_hooks.sampling_hook(runner).before_train(runner)


def test_every_stitch_of_a_sandwich_is_counted(toy_cfg):
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    toy_cfg.default_hooks.stitch_sampling.sampler = dict(
        type='SandwichSampler', num_random=2
    )
    toy_cfg.train_cfg.max_iters = 3
    runner, recorder = train(toy_cfg)
    costs = cost_table(runner.model)
    drawn = [stitch_hooks.sampling_hook(runner).sampler.sample(t) for t in range(3)]
    assert runner.message_hub.get_info('stitch_histogram') == Counter(
        i for ids in drawn for i in ids
    )
    gflops = [sum(costs[i].flops for i in ids) / 1e9 for ids in drawn]
    assert recorder.logged == pytest.approx(gflops)


SIZES = (32, 48), (64, 64)


def test_sizes_are_drawn_like_stitches(toy_cfg):
    toy_cfg.default_hooks.checkpoint.max_keep_ckpts = -1
    toy_cfg.default_hooks.stitch_sampling.sizes = SIZES
    del toy_cfg.default_hooks['stitch_statistics']
    toy_cfg.train_cfg.max_iters = 6
    runner, recorder = train(toy_cfg)
    hook = stitch_hooks.sampling_hook(runner)
    assert {*recorder.sizes} == {*SIZES}
    assert recorder.stitches == [hook.sampler.sample(t)[0] for t in range(6)]
    tables = {size: cost_table(runner.model, size) for size in SIZES}
    steps = zip(recorder.sizes, recorder.stitches, strict=True)
    gflops = [tables[size][i].flops / 1e9 for size, i in steps]
    assert recorder.logged == pytest.approx(gflops)

    # Exactly resumed, from half the way.
    resumed = dict(load_from=f'{toy_cfg.work_dir}/iter_3.pth', resume=True)
    again, rest = train(toy_cfg, **resumed)
    assert rest.sizes == recorder.sizes[3:]
    assert_same(again.model.state_dict(), runner.model.state_dict())

    # Validation sees images as they are, as whatever follows a training does.
    backbone = find_stitched_backbone(runner.model)
    assert backbone.input_size is None
    set_input_size(runner.model, SIZES[0])
    hook.before_val(runner)
    assert backbone.input_size is None
