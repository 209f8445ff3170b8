import json

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.runner import Runner
from watching_hooks import train

from snnet_mm.engine import stitch_hooks
from snnet_mm.evaluation import cost_table
from snnet_mm.stitching import Setup

LATENCY = {3: 20, 7: 22, 0: 30}


def write_costs(cfg, path, latency=LATENCY):
    table = cost_table(Runner.from_cfg(cfg).model)
    milliseconds = {i: float(latency.get(i, 1)) for i in table}
    table = table.measured(Setup('a board', 1, 'float32'), milliseconds)
    path.write_text(json.dumps(table.to_dict()))


@pytest.fixture
def ros_cfg(toy_cfg, tmp_path):
    """ROS by milliseconds: stitches 3 and 7 are a group by themselves."""
    del toy_cfg.default_hooks.stitch_init
    sampler = dict(type='ResourceConstrainedSampler', cost='latency', step=5)
    costs = tmp_path / 'costs.json'
    write_costs(toy_cfg, costs)
    toy_cfg.default_hooks.stitch_sampling = ConfigDict(
        type='StitchSamplingHook', sampler=sampler, costs=str(costs)
    )
    return toy_cfg


def test_a_run_and_a_resumed_one_draw_by_milliseconds(ros_cfg):
    runner, first = train(ros_cfg, **{'train_cfg.max_iters': 3})
    hook = next(h for h in runner.hooks if hasattr(h, 'sampler'))
    others = tuple(i for i in hook.sampler.costs if i not in LATENCY)
    assert hook.sampler.groups == [others, (3, 7), (0,)]
    _, second = train(ros_cfg, **{'train_cfg.max_iters': 6, 'resume': True})
    drawn = [hook.sampler.sample(n)[0] for n in range(6)]
    assert first.stitches + second.stitches == drawn


def test_costs_that_were_measured_again_are_refused(ros_cfg, tmp_path, monkeypatch):
    train(ros_cfg)
    write_costs(ros_cfg, tmp_path / 'costs.json', {**LATENCY, 0: 31})
    with pytest.raises(ValueError, match='the costs in the run that is resumed'):
        train(ros_cfg, **{'train_cfg.max_iters': 3, 'resume': True})

    def of_another_machine(objects):
        objects[0] = 'of rank 0'

    name = 'broadcast_object_list'
    monkeypatch.setattr(stitch_hooks, name, of_another_machine)
    with pytest.raises(ValueError, match='a file with the costs on rank 0'):
        train(ros_cfg)


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(costs=None), 'latency .* not measured.*config key: Stitch'),
        (dict(costs='none.json'), 'none.json cannot be read'),
        (dict(input_size=(32, 32)), 'costs.json .*holds for images of 64x64'),
    ],
)
def test_costs_that_do_not_fit_are_refused(ros_cfg, changes, message):
    ros_cfg.default_hooks.stitch_sampling.update(changes)
    with pytest.raises(ValueError, match=message):
        train(ros_cfg)


def test_costs_of_another_model_are_refused(ros_cfg):
    for anchor in ros_cfg.model.backbone.anchors:
        anchor.arch.mlp_ratio = 3
    with pytest.raises(ValueError, match='costs.json .*is of another model: stitch 0'):
        train(ros_cfg)


@pytest.mark.parametrize('task', ['seg', 'depth'])
def test_sampling_is_the_same_after_a_resume(toy_cfg):
    work_dir = toy_cfg.work_dir
    _, straight = train(toy_cfg, work_dir=f'{work_dir}/a', train_cfg=dict(max_iters=6))
    assert len(set(straight.stitches)) > 2
    _, first = train(toy_cfg, **{'train_cfg.max_iters': 3})
    _, second = train(toy_cfg, **{'train_cfg.max_iters': 6, 'resume': True})
    assert first.stitches + second.stitches == straight.stitches


def test_the_cost_of_the_sampled_stitch_is_logged(toy_cfg):
    runner, recorder = train(toy_cfg)
    costs = cost_table(runner.model)
    assert recorder.logged == [costs[i].flops / 1e9 for i in recorder.stitches]


def test_a_model_that_cannot_be_counted(toy_cfg, monkeypatch, caplog):
    """It is sampled without costs, by a sampler that goes by none."""

    def fail(model, input_size):
        raise ValueError('its head wants ground truth')

    monkeypatch.setattr(stitch_hooks, 'cost_table', fail)
    sampling = toy_cfg.default_hooks.stitch_sampling
    message = 'without costs, such as UniformSampler.* its head wants ground truth'
    with pytest.raises(ValueError, match=message):
        train(toy_cfg)
    sampling.sampler = dict(type='UniformSampler')
    toy_cfg.log_level = 'WARNING'
    runner = Runner.from_cfg(toy_cfg)
    runner.logger.addHandler(caplog.handler)
    runner.train()
    (said,) = [m for m in caplog.messages if 'without costs' in m]
    assert said.endswith('its head wants ground truth')
    assert sum(runner.message_hub.get_info('stitch_histogram').values()) == 2
    assert 'train/stitch_gflops' not in runner.message_hub.log_scalars


def test_parts_of_the_model_are_asked_about_the_space(toy_cfg):
    class Picky(torch.nn.Module):
        def check_space(self, space):
            raise ValueError(f'not for {len(space)} stitches')

    runner = Runner.from_cfg(toy_cfg)
    runner.model.picky = Picky()
    with pytest.raises(ValueError, match='not for 14 stitches'):
        runner.train()


def test_hooks_without_names_train_the_same(toy_cfg):
    """As in configs that list them in custom_hooks."""
    named, first = train(toy_cfg, work_dir=f'{toy_cfg.work_dir}/named')
    hooks = toy_cfg.default_hooks
    toy_cfg.custom_hooks = [hooks.pop('stitch_init'), hooks.pop('stitch_sampling')]
    del hooks.stitch_report
    listed, second = train(toy_cfg)
    assert first.stitches == second.stitches
    weights = listed.model.state_dict()
    assert all(v.equal(weights[k]) for k, v in named.model.state_dict().items())
