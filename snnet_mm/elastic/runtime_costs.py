"""Milliseconds of chains in ONNX Runtime, measured on graphs and predicted for plans.

The torch-free runtime measures the same: from an image to its prediction.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import numpy as np
from mmengine.config import Config
from mmengine.logging import MMLogger
from torch import nn

from snnet_mm.anchors import BranchView
from snnet_mm.costs import size_name
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.formats import ONNX_PACKAGES
from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.device import processor
from snnet_mm.stitching import Plan, changes_of
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, is_whole, plural
from snnet_mm.utils.logging import at_least

from .convert import elastic_config, elastic_model
from .step_costs import StepCosts

RUNS_IN = 'pytorch', 'runtime'
NETWORK = 'network'  # in place of the plan of a chain
NARROW = 1 / 4  # of the units, in probes


def check_runtime(threads: int | None, device: str | None) -> tuple[int, str]:
    """Return the threads and the device of a network whose graphs are timed here."""
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    expected = f"'pytorch', or pip install -e '.[onnx]' for {', '.join(missing)}"
    check(not missing, '--for', RUNS_IN[1], expected)
    threads = 1 if threads is None else threads
    check(is_whole(threads, 1), '--threads', threads, '1 or more')
    expected = "'cpu', whose milliseconds --for runtime measures"
    check(device in (None, 'cpu'), '--device', device, expected)
    return threads, 'cpu'


def precisions_of(backbone: nn.Module) -> tuple[str, ...]:
    """Return the precisions that graphs of a network may have on a CPU."""
    linear = any(isinstance(module, nn.Linear) for module in backbone.modules())
    return ('fp32', 'int8') if linear else ('fp32',)


class _OneThread(StitchRuntime):
    """Times the calls of one thread without the time that other processes take."""

    @staticmethod
    def _clock() -> float:
        return time.thread_time()


class GraphTimes:
    """Exports chains of a network and times their graphs in ONNX Runtime.

    Args:
        cfg: Config of the network.
        network: The network.
        threads: Threads of a call.
        say: Called with a line per measurement.

    Attributes:
        precisions: The precisions that its graphs may have on a CPU.
        device: Name of the CPU, with threads and version of onnxruntime.
    """

    def __init__(
        self,
        cfg: Config,
        network: nn.Module,
        threads: int,
        say: Callable[[str], None],
    ) -> None:
        import onnxruntime

        lacks = task_of(network).without_heads(network)
        check(lacks is None, '--for', RUNS_IN[1], f"'pytorch': {lacks}")
        self.cfg, self.network, self.threads, self.say = cfg, network, threads, say
        self.precisions = precisions_of(network.backbone)
        self.device = f'{processor()}, {plural(threads, "thread")}, '
        self.device += f'onnxruntime {onnxruntime.__version__}'

    def setup(self, size: tuple[int, int]) -> str:
        """Return the setup that milliseconds belong to."""
        return f'{self.device}, images: {size_name(size)}'

    def start(
        self,
        size: tuple[int, int],
        known: dict[str, dict[str, float]],
        save: Callable[[], None],
    ) -> None:
        """Set the size of images, and what is known.

        Args:
            size: Height and width.
            known: Milliseconds by precision and chain.
            save: Called after every addition to the known ones.
        """
        self.size, self.known, self.save = size, known, save

    def of(
        self, chains: Iterable[str], precisions: Sequence[str] | None = None
    ) -> dict[str, dict[str, float]]:
        """Return known milliseconds by precision and chain; measure those that lack.

        Args:
            chains: The chains, or :data:`NETWORK`.
            precisions: Some of the precisions of the network. Default: all.
        """
        wanted, lacking = {*chains}, set()
        precisions = precisions or self.precisions
        for precision in precisions:
            lacking |= wanted - self.known.setdefault(precision, {}).keys()
        if lacking:
            self.say(f'Exporting and timing {plural(len(lacking), "graph")}')
            names = [NETWORK, *sorted(lacking - {NETWORK})]
            ids = [i for i, name in enumerate(names) if name in lacking]
            found = self._run(names[1:], ids, precisions)
            for (precision, i), ms in found.items():
                self.known[precision][names[i]] = ms
            self.save()
        return self.known

    def _run(
        self,
        chains: Sequence[str],
        ids: Sequence[int],
        precisions: Sequence[str],
    ) -> dict[tuple[str, int], float]:
        """Return milliseconds by precision and stitch id."""
        cfg = elastic_config(self.cfg, self.network, chains, self.size)
        model, found = elastic_model(self.network, chains), {}
        quiet = at_least(logging.WARNING, MMLogger.get_current_instance())
        with quiet, TemporaryDirectory() as folder:
            exporter = StitchExporter(cfg, model, folder, self.size)
            exporter.export_bundle(ids, precisions=precisions)
            options = dict(threads=self.threads, prepared=bool(exporter.steps.left))
            kind = _OneThread if self.threads == 1 else StitchRuntime
            for precision in precisions:
                runtime = kind(folder, precision=precision, **options)
                found |= runtime.latencies()
        return found


class Rates:
    """Predicts milliseconds of plans from a few measured ones, in one precision.

    The time of a graph is the sum of a constant, of an overhead of every branch that
    runs, and of its FLOPs at one rate for attention, one for MLPs and the maps of gaps,
    and one for all else. Overheads are proportional to the area of the images. All are
    fitted to relative errors by non-negative least squares.

    Args:
        costs: Costs at every scale.
        times: Milliseconds by scale and plan.
    """

    def __init__(
        self,
        costs: Mapping[float, StepCosts],
        times: Mapping[tuple[float, Plan], float],
    ) -> None:
        from scipy.optimize import nnls  # slow to import

        found = [_quantities(costs[s], plan) / ms for (s, plan), ms in times.items()]
        rows = np.array(found)
        size = rows.max(0)
        size[size == 0] = 1
        self.values = nnls(rows / size, np.ones(len(rows)))[0] / size

    def of(self, costs: StepCosts, plan: Plan) -> float:
        """Return the milliseconds of a plan at the scale of the costs."""
        return float(_quantities(costs, plan) @ self.values)

    def step(self, costs: StepCosts, step: int, units: int) -> float:
        """Return the milliseconds of one step; 0 units stand for the map of a gap."""
        return float(_quantities_of_step(costs, step, units) @ self.values)


class RuntimeCosts:
    """The costs of plans, with milliseconds of graphs in one precision.

    See :class:`StepCosts`, whose other costs it has.
    """

    def __init__(self, costs: StepCosts, precision: str, rates: Rates) -> None:
        self._costs, self.precision, self._rates = costs, precision, rates
        self.scale, self.view, self.space = costs.scale, costs.view, costs.space

    def of(self, cost: str, plan: Plan) -> float:
        if cost == 'latency':
            return self._rates.of(self._costs, plan)
        return self._costs.of(cost, plan)

    def step(self, cost: str, step: int, units: int) -> float:
        if cost == 'latency':
            return self._rates.step(self._costs, step, units)
        return self._costs.step(cost, step, units)

    def write(self, plan: Plan) -> str:
        return name_of(self._costs, plan)


def runtime_costs(
    graphs: GraphTimes, costs: Mapping[float, StepCosts]
) -> dict[tuple[float, str], RuntimeCosts]:
    """Return the costs of plans in the runtime, by scale and precision.

    Probes run at the largest and the smallest scale.
    """
    probes, found = {}, {}
    for scale in sorted({max(costs), min(costs)}):
        for plan in runtime_probes(costs[scale].view):
            probes[scale, plan] = name_of(costs[scale], plan)
    times = graphs.of(probes.values())
    for precision in graphs.precisions:
        own = {key: times[precision][name] for key, name in probes.items()}
        rates = Rates(costs, own)
        for scale, counted in costs.items():
            found[scale, precision] = RuntimeCosts(counted, precision, rates)
    return found


def name_of(costs: StepCosts, plan: Plan) -> str:
    """Return a chain at the scale of its costs as text, or :data:`NETWORK`."""
    whole = costs.scale == 1 and plan == costs.view.widths
    return NETWORK if whole else costs.write(plan)


def runtime_probes(view: BranchView) -> list[Plan]:
    """Return plans whose times tell the :class:`Rates`.

    These are the whole network, one that skips every other branch, and for every kind
    of branches one that narrows these.
    """
    plans, gaps = [view.widths], {*view.skippable[::2]}
    plans.append(tuple(0 if i in gaps else n for i, n in enumerate(view.widths)))
    for kind in _kinds(view):
        of_kind = {i for i, step in enumerate(view.steps) if step.kind == kind}
        narrow = [max(1, round(NARROW * width)) for width in view.widths]
        pairs = enumerate(zip(view.widths, narrow, strict=True))
        plans.append(tuple(pair[i in of_kind] for i, pair in pairs))
    return [*dict.fromkeys(plans)]


def _kinds(view: BranchView) -> list[str]:
    """Return the kinds of branches: attention, MLP, or whole blocks."""
    found = (step.kind for step in view.steps if step.branch is not None)
    return sorted({*found})


def _quantities(costs: StepCosts, plan: Plan) -> np.ndarray:
    """Return what the time of a plan is proportional to; see :class:`Rates`."""
    view = costs.view
    branches = [i for i, step in enumerate(view.steps) if step.branch is not None]
    rest = costs.of('flops', view.widths)
    rest -= sum(costs.step('flops', i, view.widths[i]) for i in branches)
    total = np.zeros(3 + len(_kinds(view)))
    total[:2] = 1, rest
    gaps = {i for i, _, n in changes_of(plan, view.widths, costs.space.read) if not n}
    for i in branches:
        if plan[i] or i in gaps:
            total += _quantities_of_step(costs, i, plan[i])
    return total


def _quantities_of_step(costs: StepCosts, step: int, units: int) -> np.ndarray:
    kinds, of = _kinds(costs.view), costs.view.steps[step]
    found = np.zeros(3 + len(kinds))
    if of.branch is not None:
        found[2] = costs.scale**2 * (units > 0)
        # Maps of gaps are products with a matrix, as are most of the FLOPs of MLPs.
        place = kinds.index(of.kind) if units else len(kinds) - 1
        found[3 + place] = costs.step('flops', step, units)
    return found
