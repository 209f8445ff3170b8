"""HTTP service on Ray Serve that chooses stitches by queue length and deadline."""

import asyncio
import io
import itertools
import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.budgets import parse_budget
from snnet_mm.runtime.checks import check, is_number, is_whole
from snnet_mm.runtime.deadline import choose
from snnet_mm.runtime.folder import read_image

from .answers import TEXT, Answer, check_body, encode, later, reject

#: Settings that can be changed while the service runs.
SETTINGS = dict(
    deadline_ms=None,  # default for requests that specify none
    budget=None,  # limit of the allowed stitches, such as '25ms' or '2G'
    stitches=None,  # allowed ids on the Pareto front; by default all
    max_queue=64,  # accepted requests that are not yet answered
    max_bytes=20_000_000,  # per body
    max_pixels=20_000_000,  # per image
    timeout_s=30,  # for receiving a body, and for answering
)
PIPE = 1000  # requests that Ray passes on; those beyond max_queue are shed here
RECENT = 10  # requests from which the arrival rate is estimated
MARGIN = 2  # safety margin, in mean errors of the expected times
OWN, SHARED = 0.3, 0.1  # update rates of expected times: own stitch, other stitches


def check_settings(settings: Mapping[str, Any], runtime: StitchRuntime) -> dict:
    """Validate settings of a service; return them with the defaults filled in.

    Raises:
        ValueError: If a setting is wrong; the message contains its name and value.
    """
    for key in settings:
        check(key in SETTINGS, 'settings', key, SETTINGS)
    found = SETTINGS | dict(settings)
    for key in ('max_queue', 'max_bytes', 'max_pixels'):
        check(is_whole(found[key], 1), key, found[key], 'whole numbers from 1')
    for key in ('deadline_ms', 'timeout_s'):
        right = found[key] is None and SETTINGS[key] is None
        right = right or is_number(found[key]) and found[key] > 0
        check(right, key, found[key], 'positive numbers')
    candidates(runtime, found)
    return found


def candidates(runtime: StitchRuntime, settings: Mapping[str, Any]) -> dict:
    """Return milliseconds of the stitches that the settings allow, fastest first."""
    front, ids, budget = runtime.front(), settings['stitches'], settings['budget']
    if ids is not None:
        known = sorted({key[1] for key in front})
        right = isinstance(ids, list) and ids and all(i in known for i in ids)
        check(right, 'stitches', ids, f'a list of some of {known}, the Pareto front')
        front = {key: ms for key, ms in front.items() if key[1] in ids}
    if budget is not None:
        about, largest = runtime.stitches, runtime.manifest['largest_flops']
        cost, limit = parse_budget(budget, 'budget').of([largest])
        check(cost != 'memory', 'budget', budget, "'25ms', '2G', '50%' and '3M'")
        costs = {key: about[key[1]].get(cost, ms) for key, ms in front.items()}
        allowed = 'what buys the fastest stitch'
        check(min(costs.values()) <= limit, 'budget', budget, allowed)
        front = {key: ms for key, ms in front.items() if costs[key] <= limit}
    return front


class Work(NamedTuple):
    """A request in the queue of a replica, ordered by deadline."""

    deadline: float
    number: int
    body: bytes
    answer: asyncio.Future


class Worker:
    """A replica: one runtime, one thread, and a queue ordered by deadlines.

    Images are not batched: on a CPU a batch takes hardly less time than its images one
    by one, so only switching to another stitch saves time.
    """

    choose = staticmethod(choose)

    def __init__(
        self, bundle: str, threads: int | None = None, precision: str | None = None
    ) -> None:
        self._runtime = StitchRuntime(bundle, threads, 1000, precision)
        channels = self._runtime.manifest['input']['shape'][1]
        wanted = 'a bundle for images of three channels'
        check(channels == 3, 'bundle', f'{bundle}, of {channels} channels', wanted)
        for key in self._runtime.front():  # the folder may be removed later
            self._runtime.set_stitch(*key[::-1])
        self._thread, self._numbers = ThreadPoolExecutor(1), itertools.count()
        self._arrivals: deque[float] = deque(maxlen=RECENT)
        self._settings: dict = {}
        self._queue: asyncio.PriorityQueue[Work] | None = None

    def reconfigure(self, settings: dict) -> None:
        """Apply settings of :func:`check_settings`, which accompany every request."""
        if settings != self._settings:
            self._settings = settings
            self._times, self._error = candidates(self._runtime, settings), 0.1

    async def predict(self, body: bytes, slack: float | None, settings: dict) -> Answer:
        """Predict an image file within ``slack`` milliseconds, or return an error."""
        self.reconfigure(settings)
        now, loop = time.monotonic() * 1000, asyncio.get_running_loop()
        if self._queue is None:
            self._queue = asyncio.PriorityQueue()
            self._task = loop.create_task(self._work())
        self._arrivals.append(now)
        deadline = math.inf if slack is None else now + slack
        work = Work(deadline, next(self._numbers), body, loop.create_future())
        self._queue.put_nowait(work)
        return await work.answer

    def about(self) -> list[dict]:
        """Return the allowed stitches with their currently expected milliseconds."""
        ranked, found = self._runtime.manifest['ranked_by'], []
        for (precision, i), ms in self._times.items():
            stitch = self._runtime.stitches[i]
            about = dict(id=i, precision=precision, ms=round(ms, 2))
            about |= {key: stitch[key] for key in ('kind', 'route', 'flops', 'metrics')}
            found.append(about | dict(ranked_by=ranked and ranked['metric']))
        return found

    async def _work(self) -> None:
        """Answer queued requests in a loop, the most urgent first."""
        loop = asyncio.get_running_loop()
        while True:
            work = await self._queue.get()
            if work.answer.done():  # the client has disconnected
                continue
            now = time.monotonic() * 1000
            key = self._choose(work.deadline - now, self._queue.qsize() + 1, now)
            if key is None:
                words = f'{work.deadline - now:.0f} ms are left; the fastest stitch '
                words += f'takes {min(self._times.values()):.0f}'
                answer = later(words, self._queue.qsize() * min(self._times.values()))
                self._recover(work.deadline - now)
            else:
                run = loop.run_in_executor(self._thread, self._run, work.body, key)
                answer, elapsed = await run
                if answer.status == 200:
                    self._learn(key, elapsed)
            if not work.answer.done():
                work.answer.set_result(answer)

    def _choose(self, slack: float, waiting: int, now: float) -> tuple | None:
        """Choose a stitch: without deadline the best one, None if all are too slow."""
        if slack == math.inf:
            return list(self._times)[-1]
        # The first arrival starts the interval and is not counted.
        rate = (len(self._arrivals) - 1) / max(now - self._arrivals[0], 1)
        planned = slack / (1 + MARGIN * self._error)
        key = self.choose(self._times, planned, waiting, rate)
        return key or choose(self._times, slack, math.inf)

    def _run(self, body: bytes, key: tuple[str, int]) -> tuple[Answer, float]:
        """Predict an image file in the thread; return the answer and milliseconds."""
        begin = time.perf_counter()
        try:
            image = read_image(io.BytesIO(body))
        except Exception as error:  # decoders raise arbitrary exceptions
            words = f'image cannot be read: {type(error).__name__}: {error}'
            return reject(400, words), 0
        try:
            self._runtime.set_stitch(*key[::-1])
            try:
                (found,) = self._runtime.predict_batch([image])
            except ValueError as error:
                return reject(400, str(error)), 0
            body, media_type = encode(found)
        except Exception as error:  # the queue must go on
            return reject(500, f'{type(error).__name__}: {error}'), 0
        elapsed = (time.perf_counter() - begin) * 1000
        about = {'X-Precision': key[0], 'X-Stitch-Id': str(key[1])}
        about |= {'X-Milliseconds': f'{elapsed:.2f}'}
        return Answer(200, body, media_type, about), elapsed

    def _learn(self, key: tuple[str, int], elapsed: float) -> None:
        """Update the expected time of this stitch and, less, of the others (load)."""
        ratio = min(max(elapsed / self._times.get(key, elapsed), 0.5), 2)
        self._error += SHARED * (abs(ratio - 1) - self._error)
        for other in self._times:
            self._times[other] *= ratio ** (OWN if other == key else SHARED)

    def _recover(self, slack: float) -> None:
        """Move expected times towards those without load, if load alone was too much.

        Dropped requests do not run, so nothing else would lower the times again.
        """
        unloaded = candidates(self._runtime, self._settings)
        if min(unloaded.values()) <= slack:
            for key, ms in unloaded.items():
                self._times[key] += SHARED * (ms - self._times[key])


class Counts:
    """Prometheus metrics of a service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        add = dict(registry=registry)
        self.requests = Counter('snnet_requests', 'Requests', ['status'], **add)
        what = 'Requests with a deadline that were not answered by then'
        self.misses = Counter('snnet_deadline_misses', what, ['why'], **add)
        names = 'stitch', 'precision'
        self.stitches = Counter('snnet_predictions', 'Predictions', names, **add)
        self.waiting = Gauge('snnet_waiting', 'Requests not yet answered', **add)
        bounds = dict(buckets=[0.005 * 2**i for i in range(12)])
        what = 'From the whole body to the answer'
        self.seconds = Histogram('snnet_request_seconds', what, **bounds, **add)
        what = 'Reading, prediction and writing of an image'
        self.work = Histogram('snnet_prediction_seconds', what, **bounds, **add)


class Front:
    """HTTP front end: enforces limits, dispatches paths and counts; runs no model.

    Paths are ``POST /predict`` (``?deadline_ms=``), ``GET /stitches``, ``/metrics`` and
    ``/healthz``.
    """

    def __init__(self, worker: DeploymentHandle) -> None:
        self._worker, self._counts, self._waiting = worker, Counts(), 0
        self._paths = {'/predict': self._predict, '/stitches': self._stitches}
        self._paths |= {'/metrics': self._metrics, '/healthz': self._healthz}
        self._open, self._empty = True, asyncio.Event()

    def reconfigure(self, settings: dict) -> None:
        """Apply settings of :func:`check_settings`; Ray also calls it at start."""
        self._settings = settings

    async def drain(self) -> None:
        """Reject new images and return once all accepted ones are answered."""
        self._open = False
        while self._waiting:
            self._empty.clear()
            await self._empty.wait()

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        path, method = request.url.path, request.method
        wanted = 'POST' if path == '/predict' else 'GET'
        if path not in self._paths:
            answer = reject(404, f'{path}; allowed: {", ".join(self._paths)}')
        elif method != wanted:
            answer = reject(405, f'{method} {path}; allowed: {wanted}')
            answer = answer._replace(about={'Allow': wanted})
        else:
            answer = await self._paths[path](request)
        self._counts.requests.labels(answer.status).inc()
        return Response(
            answer.body, answer.status, answer.about, media_type=answer.media_type
        )

    async def _predict(self, request: Request) -> Answer:
        text, settings = request.query_params.get('deadline_ms'), self._settings
        slack = settings['deadline_ms']
        if text is not None:
            try:
                slack = float(text)
            except ValueError:
                slack = math.nan
            if not 0 < slack < math.inf:
                return reject(400, f'deadline_ms={text!r}; allowed: positive numbers')
        if not self._open:
            return later('the service stops')
        most = settings['max_queue']
        if self._waiting >= most:
            self._miss(slack, 'shed')
            return later(f'{most} requests wait; no more are taken')
        self._waiting += 1
        self._counts.waiting.set(self._waiting)
        try:
            body = await self._body(request)
            if isinstance(body, Answer):
                return body
            wrong = check_body(body, settings['max_pixels'])
            return wrong or await self._ask(body, slack)
        finally:
            self._waiting -= 1
            self._counts.waiting.set(self._waiting)
            if not self._waiting:
                self._empty.set()

    async def _body(self, request: Request) -> bytes | Answer:
        """Read a body; return an error if it is too long, too slow or incomplete."""
        most, seconds = self._settings['max_bytes'], self._settings['timeout_s']
        too_long = reject(413, f'body; allowed: {most} bytes or fewer')
        length = request.headers.get('content-length', '')
        if length.isdecimal() and int(length) > most:
            return too_long
        parts = request.stream()
        body, end = b'', time.monotonic() + seconds
        try:
            while True:
                body += await asyncio.wait_for(anext(parts), end - time.monotonic())
                if len(body) > most:
                    return too_long
        except StopAsyncIteration:
            return body
        except asyncio.TimeoutError:
            return reject(408, f'body; allowed: {seconds} s for it to arrive')
        except ClientDisconnect:
            return reject(400, 'body; allowed: a whole one')

    async def _ask(self, body: bytes, slack: float | None) -> Answer:
        """Request a prediction from a replica; if the replica dies, retry once."""
        begin, seconds = time.monotonic(), self._settings['timeout_s']
        if slack is not None:  # an answer much later is useless
            seconds = min(seconds, slack / 1000 + 1)
        answer = later('no replica answers')
        for _ in range(2):
            elapsed = time.monotonic() - begin
            left = None if slack is None else slack - elapsed * 1000
            asked = self._worker.predict.remote(body, left, self._settings)
            try:
                answer = await asyncio.wait_for(asked, seconds - elapsed)
                break
            except (RayActorError, RayServeException):
                continue
            except asyncio.TimeoutError:
                break
        elapsed = time.monotonic() - begin
        self._counts.seconds.observe(elapsed)
        if answer.status == 200:
            about = answer.about
            labels = about['X-Stitch-Id'], about['X-Precision']
            self._counts.stitches.labels(*labels).inc()
            self._counts.work.observe(float(about['X-Milliseconds']) / 1000)
            if slack is not None and elapsed * 1000 > slack:
                self._miss(slack, 'late')
        elif answer.status == 503:
            self._miss(slack, 'dropped')
        return answer

    def _miss(self, slack: float | None, why: str) -> None:
        if slack is not None:
            self._counts.misses.labels(why).inc()

    async def _about(self) -> list[dict] | None:
        try:
            return await asyncio.wait_for(self._worker.about.remote(), 5)
        except (RayActorError, RayServeException, asyncio.TimeoutError):
            return None

    async def _stitches(self, request: Request) -> Answer:
        found = await self._about()
        if found is None:
            return later('no replica answers')
        body = dict(stitches=found, settings=self._settings)
        return Answer(200, json.dumps(body).encode(), 'application/json')

    async def _metrics(self, request: Request) -> Answer:
        return Answer(200, generate_latest(self._counts.registry), TEXT)

    async def _healthz(self, request: Request) -> Answer:
        if await self._about() is None:
            return later('no replica answers')
        return Answer(200, b'ok\n', TEXT)


def build_service(
    bundle: str | os.PathLike,
    settings: Mapping[str, Any],
    replicas: int = 1,
    threads: int | None = 1,
    precision: str | None = None,
    worker: type[Worker] = Worker,
) -> serve.Application:
    """Build an app for ``serve.run``; its handle's ``reconfigure`` changes settings.

    Args:
        bundle: Folder of a bundle, at the same path on all machines.
        settings: Settings returned by :func:`check_settings`, with all keys.
        replicas: Number of processes, each with its own runtime.
        threads: Threads per call, and CPUs that Ray reserves for each replica.
        precision: As in :class:`StitchRuntime`.
        worker: Class of the replicas.
    """
    common = dict(max_ongoing_requests=PIPE, user_config=dict(settings))
    options = dict(num_cpus=threads or 1)
    replica = serve.deployment(worker, name='worker', **common).options(
        num_replicas=replicas, ray_actor_options=options
    )
    front = serve.deployment(Front, name='front', max_queued_requests=PIPE, **common)
    front = front.options(ray_actor_options=dict(num_cpus=0))
    folder = os.path.abspath(bundle)
    return front.bind(replica.bind(folder, threads, precision))
