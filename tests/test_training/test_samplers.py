from collections import Counter

import pytest
from mmengine.registry import TASK_UTILS
from tables import table_of

from snnet_mm.stitching import SlidingWindowSpace, TwoWaySpace
from snnet_mm.training import (
    ResourceConstrainedSampler,
    SandwichSampler,
    UniformSampler,
)
from snnet_mm.training import samplers as samplers_module

# Three groups at step 10: {0}, {2, 3, 4, 5}, {1}.
COSTS = table_of({0: 0, 1: 100, 2: 40, 3: 42, 4: 44, 5: 50})
SPACE = TwoWaySpace([4, 8])
# First draws with seed 3.
UNIFORM = [(12,), (14,), (12,), (4,), (0,), (0,)]
ROS = [(14,), (14,), (14,), (3,), (2,), (0,)]
SANDWICH = [(1, 0, *m) for m in ((12, 3), (14, 6), (13, 2), (6, 3), (2, 13), (2, 3))]


@pytest.mark.parametrize(
    'kind, kwargs, shares',
    [
        (UniformSampler, {}, dict.fromkeys(range(6), 1 / 6)),
        (UniformSampler, dict(anchors=False), dict.fromkeys((2, 3, 4, 5), 1 / 4)),
        (UniformSampler, dict(ids=[0, 1, 1]), {0: 1 / 3, 1: 2 / 3}),
        (
            ResourceConstrainedSampler,
            dict(step=10),
            {0: 1 / 3, 1: 1 / 3} | dict.fromkeys((2, 3, 4, 5), 1 / 12),
        ),
    ],
)
def test_sampler_draws_stitches_or_groups_alike(kind, kwargs, shares):
    """One that is named twice is drawn twice as often."""
    sampler = kind(COSTS, seed=3, space=SlidingWindowSpace((3, 3)), **kwargs)
    drawn = Counter(i for t in range(3000) for i in sampler.sample(t))
    assert drawn.keys() == shares.keys()
    for i, share in shares.items():
        assert drawn[i] == pytest.approx(3000 * share, rel=0.2)


def test_resource_constrained_sampler_default_step_of_few_stitches():
    sampler = ResourceConstrainedSampler(COSTS)
    assert sampler.groups == [(0,), (2,), (3,), (4,), (5,), (1,)]


def test_uniform_sampler_ranks_draw_alike(monkeypatch):
    """Unless asked otherwise."""

    def draws(rank, per_rank):
        monkeypatch.setattr(samplers_module, 'get_rank', lambda: rank)
        sampler = UniformSampler(COSTS, per_rank=per_rank)
        return [sampler.sample(t) for t in range(20)]

    assert draws(0, per_rank=False) == draws(1, per_rank=False)
    assert draws(0, per_rank=True) != draws(1, per_rank=True)


@pytest.mark.parametrize('with_costs', [True, False])
@pytest.mark.parametrize(
    'config, drawn',
    [
        (dict(type='UniformSampler'), UNIFORM),
        (dict(type='ResourceConstrainedSampler', step=30), ROS),
        (dict(type='SandwichSampler', num_random=2), SANDWICH),
    ],
)
def test_sampler_draws_are_those_of_earlier_versions(config, drawn, with_costs):
    """A resumed training goes on with them; only ROS needs costs."""
    costs = table_of({i: 10 * i + 3 * (i % 5) for i in SPACE.ids})
    defaults = dict(costs=costs if with_costs else None, seed=3, space=SPACE)
    if drawn is ROS and not with_costs:
        for needs in (config, dict(type='SandwichSampler', sampler=config)):
            with pytest.raises(ValueError, match='sampler.type'):
                TASK_UTILS.build(needs, default_args=defaults)
        return
    sampler = TASK_UTILS.build(config, default_args=defaults)
    assert [sampler.sample(t) for t in range(6)] == drawn


def sandwich(space, **kwargs):
    """A sampler with costs by stitch id."""
    costs = table_of({i: 10 * i for i in space.ids})
    return SandwichSampler(costs, space, seed=3, **kwargs)


def test_sandwich_sampler_anchors_are_those_connected():
    """By the stitch that is drawn."""
    space = SlidingWindowSpace([3, 3, 3])
    sampler = sandwich(space)
    pairs = set()
    for t in range(50):
        slowest, fastest, drawn = sampler.sample(t)
        run = {s.anchor for s in space[drawn].segments}
        assert (slowest, fastest) == (max(run), min(run))
        pairs.add((slowest, fastest))
    assert pairs == {(1, 0), (2, 1)}


def test_sandwich_sampler_middle_is_of_another_sampler():
    assert set(sandwich(SPACE, num_random=12).sample(0)) == set(SPACE.ids)
    config = dict(type='ResourceConstrainedSampler', step=75)
    sampler = sandwich(SPACE, sampler=config)
    low, high = sampler.sampler.groups
    assert {*low, *high} == set(SPACE.ids) - {0, 1}
    drawn = Counter(sampler.sample(t)[2] in low for t in range(500))
    assert 200 < drawn[True] < 300


@pytest.mark.parametrize(
    ('build', 'key'),
    [
        (lambda: sandwich(SPACE, num_random=13), 'sampler.num_random'),
        (lambda: UniformSampler(COSTS, ids=[]), 'sampler.ids'),
        (lambda: UniformSampler(COSTS, ids=[2, 99]), 'sampler.ids'),
        (lambda: ResourceConstrainedSampler(table_of({0: 5, 1: 5})), 'sampler.type'),
    ],
)
def test_sampler_what_cannot_be_drawn_is_refused(build, key):
    with pytest.raises(ValueError, match=key):
        build()
