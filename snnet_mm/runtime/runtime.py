"""Exported stitches that predict images and are switched, without torch."""

import hashlib
import json
import os
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from .budget_controller import BudgetController
from .budgets import UNITS, pareto_front, parse_budget
from .bundle import MANIFEST, OPENERS, Run, check_whole, read_manifest
from .checks import check, is_whole
from .detection import Detections
from .steps import Steps

LATENCIES = 'latencies.json'
REPEATS = 5  # timed calls of each stitch
Key = tuple[str, int]  # precision and stitch id


class StitchRuntime:
    """Predicts images by the stitches of a folder of ``tools/export_stitch.py``.

    ::

        runtime = StitchRuntime('bundle')
        runtime.set_budget('25ms')
        mask = runtime(image)

    Resizing, sliding windows and what follows the graph are those of the model's test
    pipeline, so that predictions are those of mm's inferencer. Calls are safe from any
    thread: each runs the stitch that is active when it begins.

    Args:
        folder: Folder with ``manifest.json`` and the graphs, ONNX or OpenVINO.
        threads: Threads of a call; by default as many as the runtime likes.
        sessions: Graphs held in memory; the one used longest ago makes way for another.
        precision: Precision of the graphs; by default the first, and besides all whose
            files were evaluated (``--verify-on`` at export): :meth:`set_budget` and
            :meth:`hold` choose a stitch and its precision at once.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        threads: int | None = None,
        sessions: int = 8,
        precision: str | None = None,
    ) -> None:
        self.folder, self.threads, self._most = Path(folder), threads, sessions
        check(sessions > 0, 'sessions', sessions, '1 or more')
        self.manifest = manifest = read_manifest(self.folder)
        files = [file for stitch in manifest['stitches'] for file in stitch['files']]
        files += manifest.get('heads', ())
        check_whole(self.folder, [*files, *(file.get('weights') for file in files)])
        #: What the manifest says of every stitch, by its id.
        self.stitches = {stitch['id']: stitch for stitch in manifest['stitches']}
        self._files = dict(self._choosable(precision))
        self._steps = Steps(self.manifest, cache(self._open_head))
        self._sessions: OrderedDict[Key, Run] = OrderedDict()
        self._opening, self._measuring = threading.Lock(), threading.Lock()
        self._lock = threading.RLock()  # of what is active
        self._controller: BudgetController | None = None
        self._latencies: dict[Key, float] | None = None
        self._active = max(self._scores()[0], key=self._column('flops').get)

    @property
    def active_stitch(self) -> int:
        """The id of the stitch that the next call runs."""
        return self._next()[1]

    @property
    def active_precision(self) -> str:
        """The precision that the next call runs in."""
        return self._next()[0]

    def set_stitch(self, stitch_id: int, precision: str | None = None) -> None:
        """Run one stitch from the next call on, by default in its first precision."""
        known = is_whole(stitch_id) and stitch_id in self.stitches
        check(known, 'stitch_id', stitch_id, self.stitches)
        known = [name for name, i in self._files if i == stitch_id]
        check(precision in (None, *known), 'precision', precision, known)
        self._set((precision or known[0], stitch_id))

    def set_budget(self, budget: str) -> int:
        """Run, and return, the best stitch within a budget.

        ``'25ms'`` bounds the time of a call on this device, ``'2G'`` the
        multiply-accumulates and ``'3M'`` the parameters.
        """
        cost, limit = parse_budget(budget, 'budget')
        known = 'latency', 'flops', 'params'
        check(cost in known, 'budget', budget, "'25ms', '2G' and '3M'")
        column = self.latencies() if cost == 'latency' else self._column(cost)
        front = pareto_front(column, *self._scores())
        within = [key for key in front if column[key] <= limit]
        name, cheapest = front[0]
        least = f'{UNITS[cost].budget(column[front[0]])}, stitch {cheapest} in {name}'
        check(within, 'budget', budget, f'{least}, or more')
        self._set(within[-1])
        return within[-1][1]

    def hold(self, fps: float | None) -> None:
        """Switch stitches between calls such that they keep a frame rate.

        It takes the best ones that do; None, or setting a stitch, ends it.
        """
        controller = None
        if fps is not None:
            costs, (scores, higher) = self.latencies(), self._scores()
            controller = BudgetController(costs, scores, higher, target_fps=fps, load=1)
        with self._lock:
            self._active, self._controller = self._next(), controller

    def latencies(self) -> dict[Key, float]:
        """Milliseconds of a call on this device, by precision and stitch id.

        They are measured once, on noise, and kept beside the graphs where possible.
        """
        with self._measuring:
            self._latencies = self._latencies or self._read_latencies()
            return dict(self._latencies)

    def __call__(
        self, image: np.ndarray
    ) -> np.ndarray | Detections | tuple[np.ndarray, ...]:
        """Predict an image ``(H, W, 3)`` of uint8 RGB.

        Returns:
            Of segmentors classes ``(H, W)``, of depth models metres ``(H, W)``, of
            classifiers probabilities ``(classes,)``, of detectors :class:`Detections`,
            or where the manifest has no ``heads`` the maps of their pyramid.
        """
        self._steps.check_image(image)
        with self._lock:
            controller, key = self._controller, self._next()
        run = self._session(key)
        begin = time.perf_counter()
        predicted = self._steps.predict(run, image)
        elapsed = (time.perf_counter() - begin) * 1000
        with self._lock:
            same = controller is not None and controller is self._controller
            if same and controller.stitch == key:
                controller.update(elapsed)
        return predicted

    def _next(self) -> Key:
        with self._lock:
            return self._controller.stitch if self._controller else self._active

    def _set(self, key: Key) -> None:
        with self._lock:
            self._controller, self._active = None, key

    def _choosable(self, precision: str | None) -> Iterator[tuple[Key, dict]]:
        """Yield the files that may be run: never one whose loss nobody measured."""
        for i, stitch in self.stitches.items():
            files = {}
            for file in stitch['files']:
                if file['format'] in OPENERS:
                    files.setdefault(file['precision'], file)
            check(files, 'folder', str(self.folder), f'graphs of stitch {i}')
            check(precision in (None, *files), 'precision', precision, files)
            first = precision or next(iter(files))
            for name, file in files.items():
                if name == first or precision is None and self._loss(file) is not None:
                    yield (name, i), file

    def _loss(self, file: Mapping) -> float | None:
        """Return what a file is known to lose of the metric that stitches rank by."""
        ranked, found = self.manifest.get('ranked_by'), file['verified']
        if not (ranked and found and found['metric'] == ranked['metric']):
            return None
        return found['pytorch'] - found['value']

    def _open_head(self, name: str) -> Run:
        return OPENERS['onnx'](self.folder / name, self.threads or 0, {})

    def _session(self, key: Key) -> Run:
        with self._opening:
            if key not in self._sessions:
                file = self._files[key]
                arguments = self.folder / file['name'], self.threads or 0
                opened = OPENERS[file['format']](*arguments, file['options'])
                self._sessions[key] = opened
                if len(self._sessions) > self._most:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(key)
            return self._sessions[key]

    def _column(self, name: str) -> dict[Key, float]:
        return {key: self.stitches[key[1]][name] for key in self._files}

    def _scores(self) -> tuple[dict[Key, float], bool]:
        """Return scores, and whether higher is better; without metrics, by FLOPs."""
        ranked, scores = self.manifest.get('ranked_by') or {}, {}
        for key, file in self._files.items():
            score = self.stitches[key[1]]['metrics'].get(ranked.get('metric'))
            if score is not None:  # what was not measured is never chosen for it
                scores[key] = score - (self._loss(file) or 0)
        return scores or self._column('flops'), ranked.get('higher_is_better', True)

    def _read_latencies(self) -> dict[Key, float]:
        path, text = self.folder / LATENCIES, (self.folder / MANIFEST).read_bytes()
        device = f'{platform.node()} {platform.machine()}, {os.cpu_count()} CPUs'
        setup = f'{device}, threads: {self.threads}, manifest: '
        setup += hashlib.sha256(text).hexdigest()[:12]
        try:
            kept = dict(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError):
            kept = {}
        times = kept.setdefault(setup, {})
        names = {key: file['name'] for key, file in self._files.items()}
        new = {key: name for key, name in names.items() if name not in times}
        if new:
            times |= {name: self._measure(key) for key, name in new.items()}
            temporary = path.with_name(f'.{LATENCIES}.{os.getpid()}')
            with suppress(OSError):  # where nothing can be written: measured each time
                temporary.write_text(json.dumps(kept, indent=1))
                temporary.replace(path)
        return {key: times[name] for key, name in names.items()}

    def _measure(self, key: Key) -> float:
        shape = *self._steps.size, 3
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        run, times = self._session(key), []
        for _ in range(1 + REPEATS):
            begin = time.perf_counter()
            self._steps.predict(run, noise)
            times.append((time.perf_counter() - begin) * 1000)
        return median(times[1:])
