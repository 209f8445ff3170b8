from collections import Counter

import pytest

from snnet_mm.engine import ResourceConstrainedSampler, UniformSampler
from snnet_mm.engine import samplers as samplers_module
from snnet_mm.stitching import Cost, CostTable

# Three groups at step 10: {0}, {2, 3, 4, 5}, {1}.
FLOPS = {0: 0, 1: 100, 2: 40, 3: 42, 4: 44, 5: 50}


@pytest.fixture
def costs():
    return CostTable({i: Cost(f, 7 * f) for i, f in FLOPS.items()}, (8, 8))


def test_uniform_sampler_draws_every_stitch_equally_often(costs):
    sampler = UniformSampler(costs, seed=3)
    drawn = Counter(i for t in range(6000) for i in sampler.sample(t))
    assert set(drawn) == set(FLOPS)
    assert all(900 < n < 1100 for n in drawn.values())


def test_ros_draws_every_group_equally_often(costs):
    sampler = ResourceConstrainedSampler(costs, step=10, seed=3)
    assert sampler.groups == [(0,), (2, 3, 4, 5), (1,)]
    drawn = Counter(i for t in range(6000) for i in sampler.sample(t))
    assert 1900 < drawn[0] < 2100
    assert 1900 < drawn[1] < 2100
    assert all(420 < drawn[i] < 580 for i in (2, 3, 4, 5))


def test_ros_groups_by_another_cost(costs):
    sampler = ResourceConstrainedSampler(costs, step=70, cost='params')
    assert sampler.groups == [(0,), (2, 3, 4, 5), (1,)]


@pytest.mark.parametrize('sampler_type', [UniformSampler, ResourceConstrainedSampler])
def test_a_draw_depends_on_seed_and_iteration_alone(costs, sampler_type):
    kwargs = dict(step=10) if sampler_type is ResourceConstrainedSampler else {}
    straight = sampler_type(costs, seed=5, **kwargs)
    drawn = [straight.sample(t) for t in range(40)]
    resumed = sampler_type(costs, seed=5, **kwargs)
    assert [resumed.sample(t) for t in range(20, 40)] == drawn[20:]
    other = sampler_type(costs, seed=6, **kwargs)
    assert [other.sample(t) for t in range(40)] != drawn


def test_ranks_draw_alike_unless_asked_otherwise(costs, monkeypatch):
    def draws(rank, per_rank):
        monkeypatch.setattr(samplers_module, 'get_rank', lambda: rank)
        sampler = UniformSampler(costs, per_rank=per_rank)
        return [sampler.sample(t) for t in range(20)]

    assert draws(0, per_rank=False) == draws(1, per_rank=False)
    assert draws(0, per_rank=True) != draws(1, per_rank=True)


def test_ros_refuses_a_single_group(costs):
    with pytest.raises(ValueError, match=r'step=1000 .* range from 0 to 100'):
        ResourceConstrainedSampler(costs, step=1000)


@pytest.mark.parametrize('step', [0, -1])
def test_ros_refuses_a_step_that_is_not_positive(costs, step):
    with pytest.raises(ValueError, match=f'step={step} .*sampler.step'):
        ResourceConstrainedSampler(costs, step=step)


def test_ros_refuses_an_unknown_cost(costs):
    with pytest.raises(ValueError, match="'joules' is unknown"):
        ResourceConstrainedSampler(costs, step=1, cost='joules')


def test_ros_by_number_of_groups(costs):
    # Parts of width 25: 0, then 40 to 50, none up to 75, then 100.
    sampler = ResourceConstrainedSampler(costs, num_groups=4)
    assert sampler.groups == [(0,), (2, 3, 4), (5,), (1,)]


def test_ros_refuses_a_step_and_a_number_of_groups(costs):
    with pytest.raises(ValueError, match='step=5 and num_groups=3 exclude each other'):
        ResourceConstrainedSampler(costs, step=5, num_groups=3)


@pytest.mark.parametrize('num_groups', [0, -2])
def test_ros_refuses_no_groups(costs, num_groups):
    with pytest.raises(ValueError, match=f'num_groups={num_groups}; .*num_groups'):
        ResourceConstrainedSampler(costs, num_groups=num_groups)


def test_ros_refuses_one_group(costs):
    with pytest.raises(ValueError, match='num_groups=1 puts all .* from 0 to 100'):
        ResourceConstrainedSampler(costs, num_groups=1)
