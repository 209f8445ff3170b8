"""Prediction with exported, switchable stitches, without torch."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import median

import numpy as np

from .budget_controller import BudgetController
from .budgets import UNITS, best_within, pareto_front, parse_budget
from .bundle import Run, check_whole, open_onnx
from .checks import check, is_whole
from .detections import Detections, Panoptic
from .device import choose_provider, default_threads, processor, usable_cores
from .manifest import manifest_digest, read_manifest
from .steps import Steps, left_steps

LATENCIES = 'latencies.json'
WARM_UP, ROUNDS, MAX_ROUNDS = 1, 5, 15  # calls of each stitch: untimed, timed
NOISE = 0.05  # relative deviation of steady times
EQUAL = 0.5  # maximum measured loss, in metric points, of a file that counts as equal
# Bits of a weight, by precision; CPUs compute fp16 in float32.
BITS = dict(fp32=32, fp16=16, int8=8)
BITS_ON_CPU = BITS | dict(fp16=33)
GraphKey = tuple[str, int]  # precision and stitch id


class StitchRuntime:
    """Predicts images with the stitches exported by ``tools/export_stitch.py``.

    Resizing, sliding windows and postprocessing follow the model's test pipeline, so
    predictions equal the predictions of mm's inferencer. If mm would run an image at
    another size than the graph's, as in a pipeline without ``Resize``, the image is
    resized to the graph's size and predictions differ. So is an image that is smaller
    than the windows of a graph, or larger than the padded images of a detector. Calls
    are thread-safe: each runs the stitch that is active when it begins.

    A graph is opened when its stitch is selected, not in the next call. If its SHA-256
    digest differs from the manifest read at construction, for example after another
    export into the folder, a ValueError is raised.

    Pickled, as for a spawned process, it is its arguments and what it runs next: there
    it opens the folder anew.

    Args:
        folder: Folder with ``manifest.json`` and the graphs.
        threads: Threads per call. Default: ``OMP_NUM_THREADS``, as in torch, or one for
            each core that the process may use.
        sessions: Maximum number of open graphs; the least recently used is evicted.
        precision: Precision of the graphs. By default the first one and all others with
            evaluated files (``--verify-on`` at export); :meth:`set_budget` and
            :meth:`hold` then choose a stitch together with its precision.
        image_size: Height and width of the images that latencies are measured on.
            Larger ones take more sliding windows. Default: the size of the graphs.
        prepared: Whether images are arrays that have been through the steps of the test
            pipeline (``caller.before`` of the manifest, up to ``channels``). They are
            RGB, uint8 or float32, and have the size of the graphs. It is required if
            the pipeline has steps that the runtime does not know. Default: False.
        providers: Execution providers of onnxruntime in order of preference, such as
            ``('cuda', 'cpu')``; the first that is installed runs all graphs, and it is
            never the CPU unless ``'cpu'`` is named. Default: ``'cpu'``.

    Examples:
        >>> runtime = StitchRuntime('bundle')
        >>> runtime.set_budget('25ms')
        >>> mask = runtime(image)
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        threads: int | None = None,
        sessions: int = 8,
        precision: str | None = None,
        image_size: tuple[int, int] | None = None,
        prepared: bool = False,
        providers: str | Sequence[str] = 'cpu',
    ) -> None:
        self.folder = Path(folder).absolute()
        #: CPU threads per call.
        self.threads = threads or default_threads()
        #: Name of the execution provider that runs the graphs.
        self.provider = choose_provider(providers)
        settings = sessions, precision, image_size, prepared, self.provider
        self._arguments = self.folder, self.threads, *settings
        check(sessions > 0, 'sessions', sessions, '1 or more')
        self.manifest = read_manifest(self.folder)
        #: Entries of the manifest by stitch id.
        self.stitches = {stitch['id']: stitch for stitch in self.manifest['stitches']}
        self._files = dict(self._choosable(precision))
        self._steps = Steps(self.manifest, prepared)
        left = () if prepared else self._steps.left
        expected = f'another bundle: {left_steps(left)}'
        check(not left, 'argument: folder', str(folder), expected)
        self._image_size = tuple(image_size or self._steps.size)
        self._session = lru_cache(sessions)(self._open)
        self._updating = threading.Lock()
        # A key, or the controller that chooses one for every call.
        self._active: GraphKey | BudgetController
        self._set(max(self._scores()[0], key=self._column('flops').get))

    @property
    def active_stitch(self) -> int:
        """The id of the stitch that the next call runs."""
        return self._next()[1]

    @property
    def active_precision(self) -> str:
        """The precision of the next call."""
        return self._next()[0]

    @property
    def request(self) -> dict[str, object]:
        """The bundle, stitch and precision of the next call, as a record of it."""
        bundle = manifest_digest(self.manifest)
        precision, stitch = self._next()
        return dict(bundle=bundle, stitch=stitch, precision=precision)

    def __reduce__(self) -> tuple:
        return type(self), self._arguments, (self.manifest, self._active)

    def __setstate__(self, state: tuple[dict, GraphKey | BudgetController]) -> None:
        manifest, self._active = state
        expected = 'the bundle that was pickled, not one exported since'
        check(manifest == self.manifest, 'argument: folder', str(self.folder), expected)
        self._session(self._next())

    def set_stitch(self, stitch_id: int, precision: str | None = None) -> None:
        """Select the stitch of the next calls, by default in its first precision."""
        known = is_whole(stitch_id) and stitch_id in self.stitches
        check(known, 'argument: stitch_id', stitch_id, self.stitches)
        known = [name for name, i in self._files if i == stitch_id]
        check(precision in (None, *known), 'argument: precision', precision, known)
        self._set((precision or known[0], stitch_id))

    def set_budget(self, budget: str, fallback: str | None = None) -> int:
        """Select the best stitch within a budget and return its id.

        ``'25ms'`` bounds the time of a call on this device, for images of
        ``image_size``, ``'2G'`` the multiply-accumulates, ``'50%'`` these relative to
        the largest stitch of the model, and ``'3M'`` the parameters.

        Every file is ranked by its own metric (``--verify-on`` at export). A file
        counts as equal to its stitch in PyTorch if the 95 % interval of their
        difference contains zero and the loss is at most half a point. If files of a
        stitch have the same score, such as int8 and fp32 that both count as equal, the
        fastest on this device is selected for a budget in milliseconds, and the one
        with the fewest bits for other budgets, which measure nothing.

        Args:
            budget: A number with a unit or %.
            fallback: ``'cheapest'`` selects the cheapest stitch if none is within the
                budget. Default: raise a ValueError.
        """
        wanted = parse_budget(budget, 'argument: budget')
        cost, limit = wanted.of([self.manifest['largest_flops']])
        check(fallback in (None, 'cheapest'), 'fallback', fallback, (None, 'cheapest'))
        column = self.latencies() if cost == 'latency' else self._column(cost)
        scores, higher = self._scores()
        # Of files that are equal in both, the first is on the front.
        bits = BITS_ON_CPU if self.provider == 'cpu' else BITS
        by_bits = sorted(scores, key=lambda key: bits.get(key[0], 32))
        front = pareto_front(column, {key: scores[key] for key in by_bits}, higher)
        best, cheapest = best_within(front, limit), next(iter(front))
        lowest, (precision, stitch) = UNITS[cost].budget(front[cheapest]), cheapest
        expected = f'at least {lowest}, the cost of stitch {stitch} in {precision}'
        if cost == 'latency':
            expected += f', {self._measured}: delete {LATENCIES} to measure again, or '
            expected += 'set threads (--threads)'
        check(best or fallback, 'argument: budget', budget, expected)
        self._set(best or cheapest)
        return self.active_stitch

    def hold(self, fps: float | None) -> None:
        """Switch stitches between calls to maintain a frame rate.

        The best stitches that reach it are run. None, or selecting a stitch, ends it.
        """
        if fps is None:
            self._active = self._next()
            return
        settings = dict(target_fps=fps, load=1)
        controller = BudgetController(self.latencies(), *self._scores(), **settings)
        for key in (*controller.costs, controller.stitch):
            self._session(key)
        self._active = controller

    @property
    def _measured(self) -> str:
        """Description of the milliseconds of :meth:`latencies`."""
        threads = f'{self.threads} CPU thread{"s" * (self.threads > 1)}'
        if self.provider != 'cpu':
            threads = f'{self.provider} and {threads}'
        height, width = self._image_size
        place = self.folder / LATENCIES
        return f'from a {height}x{width} image to its prediction on {threads} ({place})'

    def latencies(self) -> dict[GraphKey, float]:
        """Milliseconds from an image to its prediction, by precision and stitch id.

        They are measured once on this device, on noise, and cached beside the graphs if
        possible, with the number of threads.
        """
        return dict(self._latencies)

    def front(self) -> dict[GraphKey, float]:
        """Milliseconds of the stitches on the Pareto front, fastest first."""
        return pareto_front(self.latencies(), *self._scores())

    def __call__(self, image: np.ndarray) -> np.ndarray | Detections | Panoptic:
        """Predict an image ``(H, W, 3)`` of uint8 RGB.

        Images of other numbers of channels are in the order in which mm loads them.

        Returns:
            Class indices ``(H, W)`` for segmentors, metres ``(H, W)`` for depth models,
            probabilities ``(classes,)`` for classifiers, :class:`Detections` for
            detectors, :class:`Panoptic` for panoptic models.
        """
        return self.predict_batch([image])[0]

    def predict_batch(self, images: Sequence[np.ndarray]) -> list:
        """Predict images of any sizes, as in separate calls up to rounding errors.

        Images of equal size after preprocessing run as one batch, as do their windows
        at the same position, so long lists need much memory. Files in int8 run image
        by image, because their scales are computed over a whole batch.
        """
        for image in images:
            self._steps.check_image(image)
        active, key = self._active, self._next()
        run, whole = self._session(key), key[0] != 'int8'
        begin = time.perf_counter()
        groups = [images] if whole else [[image] for image in images]
        predicted = [p for group in groups for p in self._steps.predict(run, group)]
        elapsed = (time.perf_counter() - begin) * 1000
        with self._updating:
            held = isinstance(active, BudgetController) and active.stitch == key
            if held and predicted:
                active.update(elapsed / len(predicted))
        return predicted

    def _next(self) -> GraphKey:
        active = self._active
        return active.stitch if isinstance(active, BudgetController) else active

    def _set(self, key: GraphKey) -> None:
        self._session(key)
        self._active = key

    def _open(self, key: GraphKey) -> Run:
        path = check_whole(self.folder, self._files[key])
        return open_onnx(path, self.threads, self.provider)

    def _choosable(self, precision: str | None) -> Iterator[tuple[GraphKey, dict]]:
        """Yield the files that may be selected.

        These are files in the given precision or, without one, the first file of every
        stitch and other precisions whose loss is known.
        """
        for i, stitch in self.stitches.items():
            files = {}
            for file in stitch['files']:
                if file['format'] == 'onnx':
                    files.setdefault(file['precision'], file)
            expected = f'ONNX graphs of stitch {i}'
            check(files, 'argument: folder', str(self.folder), expected)
            check(precision in (None, *files), 'argument: precision', precision, files)
            first = precision or next(iter(files))
            for name, file in files.items():
                if name == first or precision is None and self._loss(file) is not None:
                    yield (name, i), file

    def _loss(self, file: Mapping) -> float | None:
        """Return a file's loss in the ranking metric: 0 if equal, None if unknown."""
        ranked, found = self.manifest['ranked_by'], file['verified']
        if not (ranked and found and found['metric'] == ranked['metric']):
            return None
        if None in (found['pytorch'], found['value']):  # undefined on these images
            return None
        low, high = found['interval'] or (1, 0)
        equal = low <= 0 <= high and found['lost'] <= EQUAL
        return 0.0 if equal else found['pytorch'] - found['value']

    def _column(self, name: str) -> dict[GraphKey, float]:
        return {key: self.stitches[key[1]][name] for key in self._files}

    def _scores(self) -> tuple[dict[GraphKey, float], bool]:
        """Return scores, or FLOPs without metrics, and whether higher is better."""
        ranked, scores = self.manifest['ranked_by'] or {}, {}
        for key, file in self._files.items():
            score = self.stitches[key[1]]['metrics'].get(ranked.get('metric'))
            if score is not None:  # unevaluated stitches are not ranked
                scores[key] = score - (self._loss(file) or 0)
        if not scores:
            return self._column('flops'), True
        return scores, ranked['higher_is_better']

    @cached_property
    def _latencies(self) -> dict[GraphKey, float]:
        """Latencies cached in the folder; missing ones are measured and cached."""
        import onnxruntime

        path, text = self.folder / LATENCIES, json.dumps(self.manifest, sort_keys=True)
        height, width = self._image_size
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        setup = f'{processor()}, {usable_cores()} cores, threads: {self.threads}, '
        setup += f'onnxruntime {onnxruntime.__version__}, '
        setup += f'images: {height}x{width}, manifest: {digest}'
        if self.provider != 'cpu':
            setup += f', provider: {self.provider}'
        try:
            cached = json.loads(path.read_text())
        except (OSError, ValueError):
            cached = {}
        cached = cached if isinstance(cached, dict) else {}
        times = cached.setdefault(setup, {})
        names = {key: file['name'] for key, file in self._files.items()}
        if new := [key for key, name in names.items() if name not in times]:
            times |= {names[key]: ms for key, ms in self._measure(new).items()}
            temporary = path.with_name(f'.{LATENCIES}.{os.getpid()}')
            with suppress(OSError):  # read-only folder: measured again each time
                temporary.write_text(json.dumps(cached, indent=1))
                temporary.replace(path)
        return {key: times[name] for key, name in names.items()}

    def _measure(self, keys: Sequence[GraphKey]) -> dict[GraphKey, float]:
        """Time calls in rounds, so that a moment of other load affects all keys.

        Rounds end when times are steady: they vary by little, and more FLOPs take more
        time in a precision.
        """
        shape = *self._image_size, self._steps.channels
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        found: dict[GraphKey, float] = {}
        max_open = self._session.cache_parameters()['maxsize']
        for first in range(0, len(keys), max_open):
            times: dict[GraphKey, list[float]] = {
                k: [] for k in keys[first:][:max_open]
            }
            for number in range(WARM_UP + MAX_ROUNDS):
                if number >= WARM_UP + ROUNDS and self._steady(times):
                    break
                for key, of in times.items():
                    run = self._session(key)
                    begin = self._clock()
                    self._steps.predict(run, [noise])
                    of.append((self._clock() - begin) * 1000)
            found |= {key: median(of[WARM_UP:]) for key, of in times.items()}
        return found

    @staticmethod
    def _clock() -> float:
        """Return the seconds by which latencies are measured."""
        return time.perf_counter()

    def _steady(self, times: Mapping[GraphKey, Sequence[float]]) -> bool:
        """Return whether medians of times vary by little and rise with the FLOPs."""
        slowest: dict[str, float] = {}  # by precision
        for key in sorted(times, key=self._column('flops').get):
            own = times[key][WARM_UP:]
            ms = median(own)
            noise = median(abs(t - ms) for t in own) / ms
            expected = slowest.get(key[0], 0)
            if noise > NOISE or ms < (1 - NOISE) * expected:
                return False
            slowest[key[0]] = max(ms, expected)
        return True
