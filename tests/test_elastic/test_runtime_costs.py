"""Milliseconds in the runtime: predictions, against times that are made up."""

import time
from types import SimpleNamespace

import pytest
from small import small
from torch import nn

from snnet_mm.elastic import runtime_costs
from snnet_mm.elastic.runtime_costs import (
    NETWORK,
    GraphTimes,
    Rates,
    RuntimeCosts,
    check_runtime,
    precisions_of,
    runtime_probes,
)
from snnet_mm.elastic.step_costs import StepCosts, probe_chains
from snnet_mm.models import ElasticBackbone
from snnet_mm.runtime import StitchRuntime

VIT = small('vit', final_norm=True)
RESNET = dict(type='TimmStageAnchor', model='resnet18')
SIZE, WIDTHS = (32, 32), (2, 32, 2, 32, 1)
# A constant; rates of the rest, of branches that run, attention and MLPs.
TRUE = 0.5, 2e-6, 0.02, 5e-6, 3e-6


def costs_at(scale):
    view = ElasticBackbone([VIT], []).view
    backbone = ElasticBackbone([VIT], probe_chains(view, scale))
    return StepCosts(backbone, SIZE, scale)


@pytest.fixture(scope='module')
def costs():
    return {scale: costs_at(scale) for scale in (1, 0.75, 0.5)}


def milliseconds(costs, plan):
    """The time of a plan, counted by hand."""
    constant, rest, overhead, attention, mlp = TRUE
    flops = costs.of('flops', WIDTHS) - sum(
        costs.step('flops', i, WIDTHS[i]) for i in range(4)
    )
    total, before = constant + rest * flops, None
    for i, units in enumerate(plan[:4]):
        own = costs.step('flops', i, units)
        if units:
            total += overhead * costs.scale**2 + (attention, mlp)[i % 2] * own
        elif before != 0:  # a gap begins
            total += mlp * own
        before = units
    return total


@pytest.mark.parametrize('scales', [(1, 0.5), (1,)])
def test_rates_of_probes_predict_other_plans(costs, scales):
    times = {
        (s, plan): milliseconds(costs[s], plan)
        for s in scales
        for plan in runtime_probes(costs[1].view)
    }
    own, plans = {s: costs[s] for s in scales}, [(2, 0, 0, 20, 1), (1, 32, 2, 9, 1)]
    rates = Rates(own, times)
    for scale in {*scales, 0.75} if len(scales) > 1 else scales:
        for plan in [WIDTHS, (0, 0, 0, 0, 1), *plans]:
            wanted = milliseconds(costs[scale], plan)
            assert rates.of(costs[scale], plan) == pytest.approx(wanted, rel=1e-4)
            priced = RuntimeCosts(costs[scale], 'int8', rates)
            found = priced.of('latency', plan)
            assert found == pytest.approx(wanted, rel=1e-4)
            assert priced.of('flops', plan) == costs[scale].of('flops', plan)
            # As the knapsack sums them: a gap is one map.
            steps = [i for i in range(5) if plan[i] or not i or plan[i - 1]]
            less = sum(priced.step('latency', i, WIDTHS[i]) for i in range(5))
            summed = sum(priced.step('latency', i, plan[i]) for i in steps)
            total = priced.of('latency', WIDTHS) - less + summed
            assert total == pytest.approx(found, rel=1e-4)


def test_runtime_probes_tell_kinds_of_branches_apart(costs):
    wanted = [WIDTHS, (0, 32, 0, 32, 1), (1, 32, 1, 32, 1), (2, 8, 2, 8, 1)]
    assert runtime_probes(costs[1].view) == wanted
    view = ElasticBackbone([RESNET], []).view  # whose blocks cannot be narrow
    whole, gaps = runtime_probes(view)
    assert {*whole} == {1}
    assert [i for i, units in enumerate(gaps) if not units] == [1, 5]


def test_graph_times_measure_what_is_not_known(monkeypatch):
    lines, calls = [], []

    def run(self, *args):
        chains, ids, precisions = args
        calls.append(args)
        return {(p, i): i + len(p) for p in precisions for i in ids}

    monkeypatch.setattr(GraphTimes, '_run', run)
    graphs, known, saved = object.__new__(GraphTimes), dict(fp32={'b': 1.0}), []
    graphs.say, graphs.precisions = lines.append, ('fp32', 'int8')
    graphs.start(SIZE, known, lambda: saved.append(len(known['fp32'])))
    assert graphs.of(['b', 'a', NETWORK, 'a'], ['fp32']) is known
    assert known == dict(fp32={'b': 1.0, 'a': 5, NETWORK: 4})
    graphs.of(['b', 'a'], ['fp32'])
    assert graphs.of(['b', 'a'])['int8'] == {'a': 5, 'b': 6}
    assert [call[:2] for call in calls] == [(['a'], [0, 1]), (['a', 'b'], [1, 2])]
    assert lines == [f'Exporting and timing {n} graphs' for n in (2, 2)]
    assert saved == [3, 3]


@pytest.mark.parametrize('threads, share', [(1, 0), (2, 1)])
def test_graph_times_of_one_thread_leave_out_other_processes(
    threads, share, monkeypatch
):
    """A thread that waits takes no time of its CPU."""
    made = []

    class Exporter:
        def __init__(self, *args):
            self.steps = SimpleNamespace(left=[])

        def export_bundle(self, ids, precisions):
            pass

    def construct(self, folder, threads, precision, prepared):
        made.append((threads, precision, prepared))
        self.precision = precision

    def latencies(self):
        begin = self._clock()
        time.sleep(0.1)
        return {(self.precision, 0): self._clock() - begin}

    monkeypatch.setattr(runtime_costs, 'StitchExporter', Exporter)
    monkeypatch.setattr(runtime_costs, 'elastic_config', lambda *args: None)
    monkeypatch.setattr(runtime_costs, 'elastic_model', lambda *args: None)
    monkeypatch.setattr(StitchRuntime, '__init__', construct)
    monkeypatch.setattr(StitchRuntime, 'latencies', latencies)
    graphs = object.__new__(GraphTimes)
    graphs.cfg = graphs.network = graphs.size = None
    graphs.threads = threads
    found = graphs._run([], [0], ['fp32', 'int8'])
    assert [*found] == [('fp32', 0), ('int8', 0)]
    assert [*found.values()] == pytest.approx([0.1 * share] * 2, abs=0.03)
    assert made == [(threads, 'fp32', False), (threads, 'int8', False)]


@pytest.mark.parametrize(
    'args, words',
    [
        ((0, None), r'threads=0 is invalid: expected 1 or more \(option: --threads'),
        ((1.5, None), 'threads=1.5 '),
        ((None, 'cuda'), "device='cuda' is invalid: expected 'cpu'"),
    ],
)
def test_check_runtime_names_what_is_wrong(args, words):
    assert check_runtime(None, None) == (1, 'cpu')
    assert check_runtime(4, 'cpu') == (4, 'cpu')
    with pytest.raises(ValueError, match=words):
        check_runtime(*args)


def test_check_runtime_without_onnxruntime_names_the_extra(monkeypatch):
    find = runtime_costs.find_spec
    lacks = lambda name: None if name == 'onnxruntime' else find(name)  # noqa: E731
    monkeypatch.setattr(runtime_costs, 'find_spec', lacks)
    words = r"for='runtime'.*pip install -e '\.\[onnx\]' for onnxruntime"
    with pytest.raises(ValueError, match=words):
        check_runtime(None, None)


def test_graph_times_of_a_task_without_graphs_raises(monkeypatch):
    class Task:
        def without_heads(self, network):
            return 'its heads are apart'

    monkeypatch.setattr(runtime_costs, 'task_of', lambda network: Task())
    words = "for='runtime' is invalid: expected 'pytorch': its heads are apart"
    with pytest.raises(ValueError, match=words):
        GraphTimes(None, nn.Linear(1, 1), 1, print)


def test_precisions_of_networks_without_linear_layers():
    assert precisions_of(nn.Sequential(nn.Linear(1, 1))) == ('fp32', 'int8')
    assert precisions_of(nn.Sequential(nn.Conv2d(1, 1, 1))) == ('fp32',)
