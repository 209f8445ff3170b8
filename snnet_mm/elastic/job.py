"""The steps of making a network elastic: measure, choose, fit, test."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from snnet_mm.anchors import BranchView
from snnet_mm.costs import measure_latency, measuring_setup, size_name, window_of
from snnet_mm.evaluation import wide_console
from snnet_mm.models import fit_in_turn
from snnet_mm.models.backbones.elastic_backbone import space_of_chains
from snnet_mm.models.backbones.scaling import scaled_size
from snnet_mm.runtime.budgets import Budget
from snnet_mm.stitching import (
    UNITS,
    Plan,
    Setup,
    SkipSpace,
    StitchTable,
    parse_budget,
    write_plan,
)
from snnet_mm.tasks import task_of
from snnet_mm.training import run
from snnet_mm.utils import check, is_number, plural, read_json, write_json

from .choosing import AIM, SCALES, Candidate, candidates_for, corrected, reachable
from .convert import give_chains
from .image_batches import ImageBatches
from .int8_linear import Int8Linear
from .report import draw_predictions, drawn_budgets, elastic_table, next_commands
from .runtime_costs import GraphTimes, RuntimeCosts, runtime_costs
from .sensitivity import TOKENS, PredictionDistance, Sensitivities, StepRecord
from .step_costs import StepCosts, probe_chains, table_of
from .token_weights import RareClassWeights

# Images on which steps are measured and, as accuracy gains by more, chains are fitted;
# see docs/explanation/tried_and_left.md. Classifiers need more for both: each of their
# images has one cls token and few patches.
NUM_IMAGES, FIT_IMAGES, OF_CLASSIFIERS = 24, 200, 500
# Other images, whose predictions are compared: fewer if images have many tokens.
NUM_COMPARED, MIN_COMPARED, COMPARED_TOKENS = 24, 4, 5000


class Job:
    """The steps of :func:`make_elastic`, on one model.

    Args:
        model: The elastic model. Each step gives it other chains.
        images: All its images.
        sample: A batch of them.
        identity: Digests of the network and of its settings, and the seed.
        folder: Output folder.
        say: Called with one line of progress per step.
        graphs: Measures milliseconds in the runtime. Default: None, for PyTorch.
    """

    def __init__(
        self,
        model: nn.Module,
        images: ImageBatches,
        sample: Tensor,
        identity: dict,
        folder: Path,
        say: Callable[[str], None],
        graphs: GraphTimes | None = None,
    ) -> None:
        self.graphs = graphs
        self.model, self.images, self.identity = model, images, identity
        self.folder, self.say, self.sample = folder, say, sample
        self.size = window_of(model) or tuple(sample.shape[-2:])
        self.view = model.backbone.view
        self.tokens = tokens_of(self.view, sample)
        self.classifies = task_of(model).name == 'classification'

    def choose(
        self,
        budgets: str | Sequence[str] | None,
        plans: Sequence[str],
        sizes: Collection[float] | None,
        num_images: int | None,
        force: bool = False,
    ) -> list[list[Candidate]]:
        """Return the chains that may serve each budget, or the given plans."""
        space = space_of_chains(
            self.view, plans or probe_chains(self.view), key='argument: plans'
        )
        if space.layers:  # none if whole networks run at smaller sizes
            self._check_tokens(space, self._fitted_images(num_images))
        given = {stitch.scale for stitch in space} if plans else sizes
        self.costs = self._costs(given)
        self._read_search(num_images)
        self.bounds: list[tuple[Budget, Budget]] = []
        #: Costs by scale and precision, if budgets are milliseconds in the runtime.
        self.timed: dict[tuple[float, str], RuntimeCosts] = {}
        if plans:
            if space.narrow:
                self._measure_branches()
            chains = [stitch for stitch in space if stitch.id]
            return [[Candidate(c.scale, space.plans[c.id], 0)] for c in chains]
        given = budgets.split(',') if isinstance(budgets, str) else budgets
        listed = given is None or isinstance(given, Sequence)
        check(listed, 'argument: budgets', budgets, "budgets such as '50%,25%'")
        parsed = [parse_budget(text, 'argument: budgets') for text in given or ()]
        in_ms = any(budget.cost == 'latency' for budget in parsed)
        if self.graphs and in_ms:
            self.timed = runtime_costs(self.graphs, self.costs)
        self.bounds = reachable(self.costs, parsed, self.say, force, self.timed)
        self._measure_branches()
        if 'int8' in {precision for _, precision in self.timed}:
            self._measure_scales(self.int8_harms, 'int8')
        found = []
        for budget, bound in self.bounds:
            measured = self.scale_harms, self.costs
            if self.timed and bound.cost == 'latency':
                measured = self.setting_harms, self.timed
                bound = bound._replace(limit=AIM * bound.limit)
            one = [(budget, bound)], self.records, *measured, self.say
            found += candidates_for(*one)
        return found

    def _costs(self, sizes: Collection[float] | None) -> dict[float, StepCosts]:
        """Count costs at all scales of which the network is able, always at 1."""
        costs, seen = {}, set()
        given = sizes is not None
        key, expected = 'argument: sizes', 'factors above 0 and up to 1, such as 0.7'
        listed = not given or isinstance(sizes, Collection)
        right = listed and all(is_number(x) and 0 < x <= 1 for x in sizes or ())
        check(right, key, sizes, expected)
        for scale in sorted({1, *(sizes if given else SCALES)}, reverse=True):
            size = scaled_size(self.size, scale, self.view.anchor)
            if size in seen:
                continue
            seen.add(size)
            give_chains(self.model, probe_chains(self.view, scale))
            try:
                costs[scale] = StepCosts(self.model, self.size, scale)
                self._check_buffers(scale)
            except ValueError:
                if given or scale == 1:
                    raise
                costs.pop(scale, None)
                self.say(f'The network does not take images of {size_name(size)}')
        return costs

    def _check_buffers(self, scale: float) -> None:
        """Raise if buffers follow the image size: weights of one size would be saved.

        Those of mmpretrain's EVA-02 do.
        """
        backbone = give_chains(self.model, probe_chains(self.view, scale))
        shapes = [x.shape for x in backbone.buffers()]
        for i in (1, 0):
            backbone.set_stitch(i)
            backbone(self.sample)
            same = shapes == [x.shape for x in backbone.buffers()]
            expected = '1, as the network has buffers of the size of its images'
            check(same, 'argument: sizes', scale, expected)

    def _read_search(self, num_images: int | None) -> None:
        """Read what an earlier call measured with the same network and images."""
        path = self.search = self.folder / 'search.json'
        enough = self._enough_images(NUM_IMAGES)
        number = enough if num_images is None else min(enough, num_images)
        self.fitted = fitted = self.images.draw(number)
        self.compared = self.images.draw(self._num_compared(), skip=len(fitted))
        self.identity |= dict(
            images=fitted.digest, num_images=len(fitted), size=list(self.size)
        )
        known = {}
        if path.exists():
            what = 'measured branches', 'tools/make_elastic.py'
            known = read_json(path, partial(_known, self.identity), *what)
        self.records: list[StepRecord | None] = known.get('steps', [])
        self.scale_harms = {1: 0.0} | _by_scale(known.get('scales', {}))
        self.int8_harms = _by_scale(known.get('int8', {}))
        #: Milliseconds in the runtime by setup, precision and chain.
        self.times: dict[str, dict[str, dict[str, float]]] = known.get('times', {})
        if self.graphs:
            known = self.times.setdefault(self.graphs.setup(self.size), {})
            self.graphs.start(self.size, known, self._save_search)

    def _save_search(self) -> None:
        steps = [None if r is None else asdict(r) for r in self.records]
        found = dict(identity=self.identity, steps=steps, scales=self.scale_harms)
        found |= dict(int8=self.int8_harms, times=self.times)
        write_json(self.search, found)

    def _measure_branches(self) -> None:
        """Measure all steps and scales; go on after an interruption."""
        path, steps, fitted = self.search, self.view.steps, self.fitted
        self._measure_scales(self.scale_harms)
        give_chains(self.model, probe_chains(self.view))
        known = self.records
        if len(known) == len(steps):
            self.say(f'Branches are measured already: {path}')
            return
        self.say(f'Measuring {len(steps)} steps of the network on {len(fitted)} images')
        images = [*fitted], [*self.compared]
        search = Sensitivities(self.model, *images, self.costs[1].scope)
        clock, first, depth = _Clock(), len(known), len(steps)
        for record in search.run(known):
            step = steps[len(known)]
            known.append(record)
            self._save_search()
            divergence = record.divergence.items() if record else ()
            found = [f'divergence {v:.4f} with {n} units' for n, v in divergence]
            total = _steps_to_run(depth - first)
            left = clock.left(total - _steps_to_run(depth - len(known)), total)
            self.say(
                f'  {len(known)}/{len(steps)}, block {step.block} {step.kind}: '
                f'{", ".join(found) or "always runs"}; {left}'
            )

    def _measure_scales(
        self, harms: dict[float, float], precision: str = 'fp32'
    ) -> None:
        """Measure the divergence of the whole network at all scales that lack one."""
        scales = [scale for scale in self.costs if scale not in harms]
        if not scales:
            return
        self.say(f'Measuring the network at {plural(len(scales), "size")}, {precision}')
        smaller = [scale for scale in scales if scale != 1]
        give_chains(self.model, [write_plan((), (), scale) for scale in smaller])
        found = self._divergences(self.compared, precision)
        harms |= dict(zip([1, *smaller], found, strict=True))
        self._save_search()

    @property
    def setting_harms(self) -> dict[tuple[float, str], float]:
        """Divergence of the whole network at every scale, in every precision."""
        harms = dict(fp32=self.scale_harms, int8=self.int8_harms)
        return {(s, p): harm for p, of in harms.items() for s, harm in of.items()}

    @torch.no_grad()
    def _divergences(
        self,
        images: ImageBatches,
        precision: str = 'fp32',
        ids: Sequence[int] | None = None,
    ) -> list[float]:
        """Return the mean divergence of predictions of stitches from the network's.

        The network is in fp32. Stitches, by default all, are in a precision: in int8,
        graphs run image by image.
        """
        backbone, int8 = self.model.backbone, precision == 'int8'
        ids = backbone.space.ids if ids is None else ids
        predictions = PredictionDistance(self.model, self.costs[1].scope)
        errors = dict.fromkeys(ids, 0.0)
        for batch in (x for xs in images for x in (xs.split(1) if int8 else [xs])):
            backbone.set_stitch(0)
            target = predictions.read(batch, backbone(batch))
            for i in (i for i in ids if i or int8):
                backbone.set_stitch(i)
                with Int8Linear() if int8 else nullcontext():
                    output = backbone(batch)
                found = predictions.read(batch, output)
                error = float(predictions.distance(found, target))
                errors[i] += error * len(batch) / len(images)
        return [*errors.values()]

    def _num_compared(self) -> int:
        """Return the number of images whose predictions are compared."""
        wanted = -(-COMPARED_TOKENS // min(self.tokens))
        fewer = min(NUM_COMPARED, max(MIN_COMPARED, wanted))
        return NUM_COMPARED if self.classifies else fewer

    def _enough_images(self, at_least: int) -> int:
        """Return the number of images whose tokens are enough for the widest branch."""
        narrow = (i for i, width in enumerate(self.view.widths) if width > 1)
        unknowns = [(i, self.view.widths[i] * self.view[i].group) for i in narrow]
        wanted = [-(-TOKENS * n // self.tokens[i]) for i, n in unknowns]
        return max(OF_CLASSIFIERS if self.classifies else at_least, *wanted, 0)

    def _fitted_images(self, number: int | None) -> ImageBatches:
        """Return the images that chains are fitted on."""
        wanted = self._enough_images(FIT_IMAGES) if number is None else number
        return self.images.draw(wanted)

    def fit(
        self, candidates: Sequence[Sequence[Candidate]], num_images: int | None
    ) -> list[str]:
        """Fit the best candidate of each budget; return these chains.

        If budgets have several, all are fitted on few images first. The best is that of
        least divergence on images that none is fitted on. Chains are in order of
        decreasing FLOPs.
        """
        batches = self._fitted_images(num_images)
        kept = [listed[0] for listed in candidates]
        if any(len(listed) > 1 for listed in candidates):
            kept = self._best(candidates, batches)
        if self.timed:
            measured = self.records, self.setting_harms, self.timed
            kept = corrected(kept, self.bounds, *measured, self.graphs, self.say)
        self.kept = kept
        best = {c[:2] for c in self.kept} - {self._network}
        flops = {c: self.costs[c[0]].of('flops', c[1]) for c in best}
        ordered = sorted(best, key=flops.get, reverse=True)
        chains = [self.costs[scale].write(plan) for scale, plan in ordered]
        network, unit = self.costs[1].of('flops', self.view.widths), UNITS['flops']
        for c, chain in zip(ordered, chains, strict=True):
            share = f'{flops[c] / network:.0%} of the FLOPs'
            self.say(f'  {unit.budget(flops[c])} ({share}): {chain}')
        self._fit(chains, batches)
        return chains

    @property
    def _network(self) -> tuple[float, Plan]:
        """Scale and plan of the network itself."""
        return 1, self.view.widths

    def _best(
        self, candidates: Sequence[Sequence[Candidate]], fitted: ImageBatches
    ) -> list[Candidate]:
        """Return the best candidate of each budget."""
        every = [c for listed in candidates for c in listed]
        keys = [*{c[:2] for c in every} - {self._network}]
        few = min(len(fitted), self._enough_images(NUM_IMAGES))
        chains = [self.costs[scale].write(plan) for scale, plan in keys]
        self._fit(chains, self.images.draw(few))
        others = self.images.draw(self._num_compared(), skip=len(fitted))
        ids = {key: i for i, key in enumerate([self._network, *keys])}
        judged, kept = {}, []
        for precision in {c.precision for c in every}:
            own = [*{c[:2] for c in every if c.precision == precision}]
            errors = self._divergences(others, precision, [ids[key] for key in own])
            pairs = zip(own, errors, strict=True)
            judged |= {(*key, precision): error for key, error in pairs}
        for listed in candidates:
            errors = {c: judged[c.scale, c.plan, c.precision] for c in listed}
            kept.append(min(errors, key=errors.get))
            found = (f'{error:.4f} at {c.place}' for c, error in errors.items())
            self.say(f'  divergence {", ".join(found)}')
        return kept

    def _fit(self, chains: Sequence[str], batches: ImageBatches) -> None:
        backbone = give_chains(self.model, chains)
        for step, order in backbone.unit_orders.items():
            order.index.copy_(torch.tensor(self.records[int(step)].order))
        images = plural(len(batches), 'image')
        self.say(f'Fitting {plural(len(chains), "chain")} on {images}')
        clock, weigh = _Clock(), None
        scope = self.costs[1].scope
        if task_of(self.model).name == 'segmentation' and scope is None:
            weigh = RareClassWeights(self.model, batches)

        def progress(done: int, total: int) -> None:
            if done == total or done % max(1, total // 5) == 0:
                self.say(f'  step {done} of {total}, {clock.left(done, total)}')

        options = dict(folder=self.folder, weigh=weigh, progress=progress)
        fit_in_turn(backbone, batches, **options)
        backbone.stitching_initialized.fill_(True)

    def _check_tokens(self, space: SkipSpace, batches: ImageBatches) -> None:
        """Warn if the images have few tokens for the widths; raise if others remain."""
        number, view, fits = len(batches), self.view, []
        for name, spec in space.layers.items():
            step, width = spec.target.block, view.block_dims[max(spec.source.block, 0)]
            if name in space.narrow:
                width = space.narrow[name][1] * view[step].group
            fits.append((width, step))
        unknowns, step = max(fits, key=lambda fit: fit[0] / self.tokens[fit[1]])
        tokens = number * self.tokens[step]
        wanted = -(-TOKENS * unknowns // self.tokens[step])
        words = f'{wanted} or more: the widest fit, in block '
        words += f'{self.view.steps[step].block}, has {unknowns} unknowns, and '
        words += f'{number} images have {tokens} tokens'
        known = tokens >= unknowns or batches.are_all
        check(known, 'argument: num_images', number, words)
        if number < wanted:
            self.say(f'Warning: num_images={number}; better {words}')

    def evaluate(self) -> StitchTable:
        """Measure and test the network and all chains in one pass; report results."""
        costs = self._measure()
        chains = plural(len(costs.rows) - 1, 'chain')
        self.say(f'Testing the network and {chains} in one pass')
        backends = [dict(type='LocalVisBackend')]  # others may not be installed
        runner = run.test(
            self.folder / 'elastic.py',
            self.model,
            self.folder / 'test',
            {'visualizer.vis_backends': backends},
            costs=costs,
            out_dir=str(self.folder),
            quiet=True,
        )
        results = run.results_of(runner)
        self._print(results)
        draw_predictions(
            runner, drawn_budgets(results), self.folder / 'predictions.png'
        )
        self.say(f'Pictures: {self.folder}/pareto.png and predictions.png')
        self.say('Next:')
        for command in next_commands(self.folder, results, runner):
            self.say(f'  {command}')
        return results

    @torch.no_grad()
    def compare(self, num_images: int | None) -> StitchTable:
        """Measure chains, and how much their predictions agree with the network's."""
        costs = self._measure()
        number = self._num_compared()  # others than those that chains were chosen on
        fitted = self._fitted_images(num_images)
        images = self.images.draw(number, skip=len(fitted) + number)
        self.say(f'Comparing with the network on {plural(len(images), "image")}')
        ids = self.model.backbone.space.ids
        errors = zip(ids, self._divergences(images), strict=True)
        agreement = {i: dict(agreement=1 - error) for i, error in errors}
        results = costs.with_metrics(agreement, len(images))
        results.save(self.folder / 'stitches.json')
        self._print(results)
        return results

    def _print(self, results: StitchTable) -> None:
        """Print a table of the results and, for budgets in the runtime, their times."""
        wide_console().print(elastic_table(results, self.graphs is not None))
        space = self.model.backbone.space
        ids = {(s.scale, space.plans[s.id]): s.id for s in space}
        for (budget, bound), c in zip(self.bounds, self.kept, strict=False):
            if self.timed and bound.cost == 'latency':
                stitch = f'stitch {i}' if (i := ids[c[:2]]) else 'the network'
                ms = self.graphs.known[c.precision][self.timed[c.setting].write(c.plan)]
                self.say(f'  {budget}: {stitch} in {c.precision}, {ms:.3g} ms')

    def _measure(self) -> StitchTable:
        """Return the costs of the network and all chains, with milliseconds."""
        costs = table_of(self.costs, self.model.backbone.space)
        if self.graphs:
            return self._measure_in_runtime(costs)
        self.say('Measuring milliseconds')
        times = measure_latency(self.model, self.size, check=(), costs=costs).by_stitch
        return costs.measured(measuring_setup(self.model, 1), times)

    def _measure_in_runtime(self, costs: StitchTable) -> StitchTable:
        """Return costs with milliseconds of every chain in the precision it is for."""
        space, device = self.model.backbone.space, self.graphs.device
        chosen = {c[:2]: c.precision for c in self.kept} | {self._network: 'fp32'}
        own = {s.id: chosen[s.scale, space.plans[s.id]] for s in space}
        for precision in {*own.values()}:
            chains = [row.route for row in costs.rows if own[row.id] == precision]
            self.graphs.of(chains, [precision])
        times = self.graphs.known
        rows = [
            replace(
                row,
                latency=times[own[row.id]][row.route],
                setup=Setup(device, 1, own[row.id]),
            )
            for row in costs.rows
        ]
        return replace(costs, rows=rows)


class _Clock:
    """Estimates the time that is left, from the time since it was made."""

    def __init__(self) -> None:
        self.begin = time.monotonic()

    def left(self, done: int, total: int) -> str:
        """Return the estimate as text."""
        seconds = int((time.monotonic() - self.begin) / done * (total - done))
        return f'ETA {seconds // 60}:{seconds % 60:02}'


def _steps_to_run(steps: int) -> int:
    """Return how many steps run if each of the last ones is followed by all others."""
    return steps * (steps + 1) // 2


@torch.no_grad()
def tokens_of(view: BranchView, images: torch.Tensor) -> list[int]:
    """Return the number of tokens of one image after every step."""
    state, numbers = view.embed(images[:1]), []
    for i in range(view.depth):
        state = view.run_block(state, i)
        numbers.append(state.tokens.shape[1])
    return numbers


def _by_scale(harms: Mapping[str, float]) -> dict[float, float]:
    return {float(scale): harm for scale, harm in harms.items()}


def _known(identity: dict, data: dict) -> dict:
    """Return the records of a measurement with the same identity, otherwise none."""
    if data['identity'] != identity:
        return {}
    steps = [None if d is None else StepRecord.read(d) for d in data['steps']]
    return dict(data, steps=steps)
