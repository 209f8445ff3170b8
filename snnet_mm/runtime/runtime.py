"""Exported stitches that predict images and are switched, without torch."""

import hashlib
import json
import os
import platform
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np

from .budget_controller import BudgetController
from .budgets import UNITS, pareto_front, parse_budget
from .bundle import MANIFEST, OPENERS, Run, check_whole, read_manifest
from .checks import check
from .steps import Steps

LATENCIES = 'latencies.json'
REPEATS = 5  # timed calls of each stitch


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
        precision: Precision of the graphs, if there are several; the first by default.
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
        check_whole(self.folder, [*files, *(file.get('weights') for file in files)])
        #: What the manifest says of every stitch, by its id.
        self.stitches = {stitch['id']: stitch for stitch in manifest['stitches']}
        self._files = {i: self._find(i, precision) for i in self.stitches}
        self._steps = Steps(self.manifest)
        self._sessions: OrderedDict[int, Run] = OrderedDict()
        self._opening, self._measuring = threading.Lock(), threading.Lock()
        self._lock = threading.RLock()  # of what is active
        self._controller: BudgetController | None = None
        self._latencies: dict[int, float] | None = None
        self._active = max(self._scores()[0], key=self._column('flops').get)

    @property
    def active_stitch(self) -> int:
        """The id of the stitch that the next call runs."""
        with self._lock:
            return self._controller.stitch if self._controller else self._active

    def set_stitch(self, stitch_id: int) -> None:
        """Run one stitch from the next call on."""
        check(stitch_id in self.stitches, 'stitch_id', stitch_id, self.stitches)
        with self._lock:
            self._controller, self._active = None, stitch_id

    def set_budget(self, budget: str) -> int:
        """Run, and return, the best stitch within a budget.

        ``'25ms'`` bounds the time of a call on this device, ``'2G'`` the
        multiply-accumulates and ``'3M'`` the parameters.
        """
        cost, limit = parse_budget(budget, 'budget')
        known = 'latency', 'flops', 'params'
        check(cost in known, 'budget', budget, "'25ms', '2G' and '3M'")
        column = self.latencies() if cost == 'latency' else self._column(cost)
        within = [
            i for i in pareto_front(column, *self._scores()) if column[i] <= limit
        ]
        cheapest = min(column, key=column.get)
        least = f'{UNITS[cost].budget(column[cheapest])}, stitch {cheapest}, or more'
        check(within, 'budget', budget, least)
        self.set_stitch(within[-1])
        return within[-1]

    def hold(self, fps: float | None) -> None:
        """Switch stitches between calls such that they keep a frame rate.

        It takes the best ones that do; None, or setting a stitch, ends it.
        """
        controller = None
        if fps is not None:
            costs, (scores, higher) = self.latencies(), self._scores()
            controller = BudgetController(costs, scores, higher, target_fps=fps, load=1)
        with self._lock:
            self._active, self._controller = self.active_stitch, controller

    def latencies(self) -> dict[int, float]:
        """Milliseconds of a call of every stitch on this device.

        They are measured once, on noise, and kept beside the graphs where possible.
        """
        with self._measuring:
            self._latencies = self._latencies or self._read_latencies()
            return dict(self._latencies)

    def __call__(self, image: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Predict an image ``(H, W, 3)`` of uint8 RGB.

        Returns:
            Of segmentors classes ``(H, W)``, of depth models metres ``(H, W)``, of
            classifiers probabilities ``(classes,)``, of detectors the maps of their
            pyramid, for their heads stay in the mm model.
        """
        self._steps.check_image(image)
        with self._lock:
            controller, stitch = self._controller, self.active_stitch
        run = self._session(stitch)
        begin = time.perf_counter()
        predicted = self._steps.predict(run, image)
        elapsed = (time.perf_counter() - begin) * 1000
        with self._lock:
            same = controller is not None and controller is self._controller
            if same and controller.stitch == stitch:
                controller.update(elapsed)
        return predicted

    def _find(self, stitch_id: int, precision: str | None) -> dict:
        """Return the file of a stitch that is opened."""
        files = [f for f in self.stitches[stitch_id]['files'] if f['format'] in OPENERS]
        known = list(dict.fromkeys(file['precision'] for file in files))
        check(files, 'folder', str(self.folder), f'graphs of stitch {stitch_id}')
        check(precision in (None, *known), 'precision', precision, known)
        return next(f for f in files if f['precision'] == (precision or known[0]))

    def _session(self, stitch_id: int) -> Run:
        with self._opening:
            if stitch_id not in self._sessions:
                file = self._files[stitch_id]
                arguments = self.folder / file['name'], self.threads or 0
                opened = OPENERS[file['format']](*arguments, file['options'])
                self._sessions[stitch_id] = opened
                if len(self._sessions) > self._most:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(stitch_id)
            return self._sessions[stitch_id]

    def _column(self, name: str) -> dict[int, float]:
        return {i: stitch[name] for i, stitch in self.stitches.items()}

    def _scores(self) -> tuple[dict[int, float], bool]:
        """Return scores, and whether higher is better; without metrics, by FLOPs."""
        ranked = self.manifest.get('ranked_by') or {}
        rows = {i: stitch['metrics'] for i, stitch in self.stitches.items()}
        scores = {i: r[ranked['metric']] for i, r in rows.items() if r and ranked}
        # A stitch that was not measured is never chosen for its score.
        return scores or self._column('flops'), ranked.get('higher_is_better', True)

    def _read_latencies(self) -> dict[int, float]:
        path, text = self.folder / LATENCIES, (self.folder / MANIFEST).read_bytes()
        names = ' '.join(sorted(file['name'] for file in self._files.values()))
        device = f'{platform.node()} {platform.machine()}, {os.cpu_count()} CPUs'
        key = f'{device}, threads: {self.threads}, manifest: '
        key += f'{hashlib.sha256(text).hexdigest()[:12]}, {names}'
        try:
            kept = dict(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError):
            kept = {}
        if key not in kept:
            kept[key] = {str(i): self._measure(i) for i in self.stitches}
            temporary = path.with_name(f'.{LATENCIES}.{os.getpid()}')
            with suppress(OSError):  # where nothing can be written: measured each time
                temporary.write_text(json.dumps(kept, indent=1))
                temporary.replace(path)
        return {int(i): milliseconds for i, milliseconds in kept[key].items()}

    def _measure(self, stitch_id: int) -> float:
        shape = *self._steps.size, 3
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        run, times = self._session(stitch_id), []
        for _ in range(1 + REPEATS):
            begin = time.perf_counter()
            self._steps.predict(run, noise)
            times.append((time.perf_counter() - begin) * 1000)
        return median(times[1:])
