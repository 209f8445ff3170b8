import json
from pathlib import Path

import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.hooks import Hook
from mmengine.runner import Runner
from watching_hooks import train as run

from snnet_mm.engine.hooks import stitch_sampling_hook
from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import Setup


class Recorder(Hook):
    def __init__(self):
        self.stitches = []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        self.stitches.append(find_stitched_backbone(runner.model).active_stitch.id)


def train(cfg, **changes):
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    runner, recorder = Runner.from_cfg(cfg), Recorder()
    runner.register_hook(recorder, priority='LOW')
    runner.train()
    return runner, recorder.stitches


def write_costs(cfg, path, latency, model=None):
    table = cost_table(model or Runner.from_cfg(cfg).model)
    milliseconds = {i: float(latency.get(i, 1)) for i in table}
    table = table.measured(Setup('a board', 1, 'float32'), milliseconds)
    path.write_text(json.dumps(table.to_dict()))
    return table


@pytest.fixture
def ros_cfg(toy_cfg, tmp_path):
    """ROS by milliseconds: stitches 3 and 7 are a group by themselves."""
    del toy_cfg.default_hooks.stitch_init
    toy_cfg.default_hooks.stitch_sampling = ConfigDict(
        type='StitchSamplingHook',
        sampler=dict(type='ResourceConstrainedSampler', cost='latency', step=5),
        costs=str(tmp_path / 'costs.json'),
    )
    return toy_cfg


def test_stitches_are_drawn_by_milliseconds(ros_cfg, tmp_path):
    table = write_costs(ros_cfg, tmp_path / 'costs.json', {3: 20, 7: 22, 0: 30})
    runner, stitches = train(ros_cfg, **{'train_cfg.max_iters': 6})
    hook = next(h for h in runner.hooks if hasattr(h, 'sampler'))
    others = tuple(i for i in table if i not in (0, 3, 7))
    assert hook.sampler.groups == [others, (3, 7), (0,)]
    assert stitches == [hook.sampler.sample(n)[0] for n in range(6)]


def test_a_resumed_run_draws_the_same(ros_cfg, tmp_path):
    write_costs(ros_cfg, tmp_path / 'costs.json', {3: 20, 7: 22, 0: 30})
    work_dir = ros_cfg.work_dir
    ros_cfg.work_dir = f'{work_dir}/straight'
    _, straight = train(ros_cfg, **{'train_cfg.max_iters': 6})
    ros_cfg.work_dir = f'{work_dir}/cut'
    _, first = train(ros_cfg, **{'train_cfg.max_iters': 3})
    _, second = train(ros_cfg, **{'train_cfg.max_iters': 6, 'resume': True})
    assert first + second == straight


def test_a_resumed_run_refuses_costs_that_were_measured_again(ros_cfg, tmp_path):
    write_costs(ros_cfg, tmp_path / 'costs.json', {3: 20, 7: 22, 0: 30})
    train(ros_cfg)
    write_costs(ros_cfg, tmp_path / 'costs.json', {3: 20, 7: 22, 0: 31})
    with pytest.raises(ValueError, match='the costs in the run that is resumed'):
        train(ros_cfg, **{'train_cfg.max_iters': 3, 'resume': True})


def test_ranks_must_read_the_same_costs(ros_cfg, tmp_path, monkeypatch):
    write_costs(ros_cfg, tmp_path / 'costs.json', {3: 20, 0: 30})

    def of_another_machine(objects):
        objects[0] = 'of rank 0'

    monkeypatch.setattr(
        stitch_sampling_hook, 'broadcast_object_list', of_another_machine
    )
    with pytest.raises(ValueError, match='a file with the costs on rank 0'):
        train(ros_cfg)


def test_milliseconds_must_have_been_measured(ros_cfg):
    costs = ros_cfg.default_hooks.stitch_sampling.pop('costs')
    with pytest.raises(ValueError, match='latency .* not measured.*config key: Stitch'):
        train(ros_cfg)
    ros_cfg.default_hooks.stitch_sampling.costs = costs
    with pytest.raises(ValueError, match='costs.json cannot be read'):
        train(ros_cfg)


def test_costs_of_another_model_are_refused(ros_cfg, tmp_path):
    other = Config(ros_cfg.to_dict())
    for anchor in other.model.backbone.anchors:
        anchor.arch.mlp_ratio = 3
    write_costs(other, Path(tmp_path / 'costs.json'), {0: 30})
    with pytest.raises(ValueError, match='costs.json .*is of another model: stitch 0'):
        train(ros_cfg)
    with pytest.raises(ValueError, match='costs.json .*holds for images of 64x64'):
        train(ros_cfg, **{'default_hooks.stitch_sampling.input_size': (32, 32)})


@pytest.mark.parametrize('task', ['seg', 'depth'])
def test_sampling_is_the_same_after_a_resume(toy_cfg):
    toy_cfg.work_dir += '/straight'
    _, straight = run(toy_cfg, **{'train_cfg.max_iters': 6})
    assert len(set(straight.stitches)) > 2
    toy_cfg.work_dir += '/cut'
    _, first = run(toy_cfg, **{'train_cfg.max_iters': 3})
    _, second = run(toy_cfg, **{'train_cfg.max_iters': 6, 'resume': True})
    assert first.stitches + second.stitches == straight.stitches


def test_the_cost_of_the_sampled_stitch_is_logged(toy_cfg):
    runner, recorder = run(toy_cfg)
    costs = cost_table(runner.model)
    assert recorder.logged == [costs[i].flops / 1e9 for i in recorder.stitches]


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
    toy_cfg.work_dir += '/named'
    named, first = run(toy_cfg)
    hooks = toy_cfg.default_hooks
    toy_cfg.custom_hooks = [hooks.pop('stitch_init'), hooks.pop('stitch_sampling')]
    del hooks.stitch_report
    toy_cfg.work_dir += '/listed'
    listed, second = run(toy_cfg)
    assert first.stitches == second.stitches
    weights = listed.model.state_dict()
    assert all(v.equal(weights[k]) for k, v in named.model.state_dict().items())
