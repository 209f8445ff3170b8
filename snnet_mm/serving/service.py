"""HTTP service on Ray Serve that chooses stitches by deadlines."""

import asyncio
import io
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import PriorityQueue
from typing import Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from PIL import Image
from ray import serve
from ray.serve import metrics

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.budgets import best_within
from snnet_mm.runtime.checks import check, is_whole
from snnet_mm.runtime.device import ON_GPUS, choose_provider
from snnet_mm.runtime.image_io import encode, read_image
from snnet_mm.runtime.load import Load

MAX_BYTES = MAX_PIXELS = 20_000_000  # of a body, and of its image
MAX_SECONDS = 20  # until a body has arrived
# Ray counts requests whose body is still arriving; a replica counts the others itself.
QUEUE = dict(max_ongoing_requests=1000, max_queued_requests=1000)
BODY = 'the body is the image file itself, as with curl --data-binary @FILE'
app = FastAPI(title='snnet_mm')


class StitchService:
    """A replica: one runtime, and one thread that answers the most urgent request next.

    Images are not batched: on a CPU a batch takes hardly less time than its images one
    by one, so only switching to another stitch saves time.

    Args:
        bundle: Folder of a bundle.
        threads: Threads per call.
        precision, providers: As in :class:`StitchRuntime`.
        deadline_ms: Deadline of requests without one and without a budget.
        max_queue: Requests that wait with their bodies; others are refused.
    """

    def __init__(
        self,
        bundle: str,
        threads: int = 1,
        precision: str | None = None,
        deadline_ms: float = math.inf,
        max_queue: int = 64,
        providers: str | Sequence[str] = 'cpu',
    ) -> None:
        Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow allows twice as many
        check(deadline_ms > 0, 'deadline_ms', deadline_ms, 'a number above 0')
        options = dict(precision=precision, providers=providers)
        self.runtime = StitchRuntime(bundle, threads, 1000, **options)
        channels = self.runtime.manifest['input']['shape'][1]
        expected = 'a bundle for images of three channels'
        found = f'{bundle}, of {channels} channels'
        check(channels == 3, 'argument: bundle', found, expected)
        check(is_whole(max_queue, 1), 'max_queue', max_queue, 'a whole number from 1')
        self.front, self._deadline = self.runtime.front(), deadline_ms
        self._max_queue = max_queue
        self.load = Load(1.0)
        for key in self.front:  # the folder may be removed later
            self.runtime.set_stitch(*key[::-1])
        self._thread, self._numbers = ThreadPoolExecutor(1), itertools.count()
        self._queue: PriorityQueue[tuple] = PriorityQueue()
        what, tags = 'Predictions by stitch', ('stitch', 'precision')
        self._counter = metrics.Counter('snnet_predictions', what, tag_keys=tags)

    @app.post('/predict')
    async def predict(
        self,
        request: Request,
        deadline_ms: float | None = Query(None, gt=0, allow_inf_nan=False),
        budget: str | None = None,
    ) -> Response:
        """Predict the image file in the body before a deadline, or within a budget."""
        try:
            body = await asyncio.wait_for(_read_body(request), MAX_SECONDS)
        except asyncio.TimeoutError as error:
            why = f'body: expected within {MAX_SECONDS} s'
            raise HTTPException(408, why) from error
        if self._queue.qsize() >= self._max_queue:
            raise self._refusal(f'{self._max_queue} requests are waiting')
        end = _now() + (deadline_ms or (math.inf if budget else self._deadline))
        answer: Future[Response] = Future()
        self._queue.put((end, next(self._numbers), answer, body, budget))
        self._thread.submit(self._work)
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        """Answer the most urgent request, unless its client has disconnected."""
        end, _, answer, body, budget = self._queue.get()
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(self._answer(end, body, budget))
            except Exception as error:
                answer.set_exception(error)

    def _choose(self, slack: float) -> tuple[str, int]:
        """Choose a stitch; if all are too slow, raise an HTTPException."""
        waiting = self._queue.qsize() + 1
        times = {key: self.load.value * ms for key, ms in self.front.items()}
        fastest, ms = next(iter(times.items()))
        if slack < ms:
            if slack >= self.front[fastest]:  # else nothing would show a lower load
                self.load.add(1.0)
            left = f'{max(slack, 0):.0f} ms are left'
            raise self._refusal(f'{left}; the fastest stitch takes {ms:.0f}')
        planned = slack / (1 + self.load.error(1))
        return best_within(times, planned / waiting) or fastest

    def _refusal(self, why: str) -> HTTPException:
        """Return the error of a busy replica, and when to try again."""
        fastest = self.load.value * next(iter(self.front.values()))
        seconds = math.ceil((self._queue.qsize() + 1) * fastest / 1000)
        return HTTPException(503, why, {'Retry-After': str(seconds)})

    def _answer(self, end: float, body: bytes, budget: str | None) -> Response:
        """Predict an image."""
        key = self._choose(end - _now())
        begin, runtime = _now(), self.runtime
        try:
            image = read_image(io.BytesIO(body))
        except ValueError as error:
            why = f'image cannot be read: {error} ({BODY})'
            raise HTTPException(400, why) from error
        try:
            if budget is None:
                runtime.set_stitch(*key[::-1])
            else:
                runtime.set_budget(budget)
            (found,) = runtime.predict_batch([image])
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        precision, stitch = key = runtime.active_precision, runtime.active_stitch
        maps = runtime.manifest['task'] in ('segmentation', 'depth')
        content = encode(found, len(runtime.manifest['classes']))
        elapsed = _now() - begin
        if key in self.front:
            self.load.add(elapsed / self.front[key])
        self._counter.inc(tags=dict(stitch=str(stitch), precision=precision))
        about = {'X-Stitch-Id': str(stitch), 'X-Precision': precision}
        about |= {'X-Milliseconds': f'{elapsed:.2f}'}
        kind = 'image/png' if maps else 'application/json'
        return Response(content, 200, about, kind)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f'body: expected at most {MAX_BYTES} bytes')
    return bytes(body)


def _now() -> float:
    return time.monotonic() * 1000


# Replicas import this module, which tells the app what self is.
_Ingress = serve.ingress(app)(StitchService)


def build_service(settings: Mapping[str, Any]) -> serve.Application:
    """Build an application; in Ray's config files, an ``import_path`` with ``args``.

    Args:
        settings: Arguments of :class:`StitchService`, and Ray's ``options`` of its
            deployment, such as ``num_replicas`` or ``autoscaling_config``. A replica
            with the provider ``'cuda'`` or ``'tensorrt'`` gets a GPU of its own.
    """
    settings = dict(settings)
    gpus = int(choose_provider(settings.get('providers', 'cpu')) in ON_GPUS)
    devices = dict(num_cpus=settings.get('threads', 1), num_gpus=gpus)
    options = QUEUE | dict(ray_actor_options=devices) | settings.pop('options', {})
    return serve.deployment(_Ingress, name='stitches', **options).bind(**settings)
