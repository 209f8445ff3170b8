"""HTTP service on Ray Serve that chooses stitches by queue and deadline."""

import asyncio
import io
import itertools
import json
import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI, HTTPException, Query, Request, Response
from PIL import Image
from ray import serve
from ray.serve import metrics

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.budgets import best_in_time
from snnet_mm.runtime.checks import check
from snnet_mm.runtime.image_io import as_png, describe, read_image

MAX_BYTES = MAX_PIXELS = 20_000_000  # of a body, and of its image
RECENT = 10  # requests from which the arrival rate is estimated
MARGIN = 2  # safety margin, in mean errors of the expected times
RATE = 0.2  # of updates of the load, and of the error of expected times
QUEUE = dict(max_ongoing_requests=32, max_queued_requests=32)
app = FastAPI(title='snnet_mm')


class Work(NamedTuple):
    """A request in the queue of a replica, ordered by deadline in ms."""

    deadline: float
    number: int
    body: bytes
    budget: str | None
    answer: asyncio.Future


class StitchService:
    """A replica: one runtime, one thread, and a queue ordered by deadlines.

    Images are not batched: on a CPU a batch takes hardly less time than its images one
    by one, so only switching to another stitch saves time.

    Args:
        bundle: Folder of a bundle.
        threads: Threads per call.
        precision: As in :class:`StitchRuntime`.
        deadline_ms: Deadline of requests without one and without a budget.
    """

    def __init__(
        self,
        bundle: str,
        threads: int = 1,
        precision: str | None = None,
        deadline_ms: float = math.inf,
    ) -> None:
        Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow allows twice as many
        check(deadline_ms > 0, 'deadline_ms', deadline_ms, 'a number above 0')
        self.runtime = StitchRuntime(bundle, threads, 1000, precision)
        channels = self.runtime.manifest['input']['shape'][1]
        expected = 'a bundle for images of three channels'
        check(channels == 3, 'bundle', f'{bundle}, of {channels} channels', expected)
        self.front, self._deadline = self.runtime.front(), deadline_ms
        self.load, self.error = 1.0, 0.1
        for key in self.front:  # the folder may be removed later
            self.runtime.set_stitch(*key[::-1])
        self._numbers, self._worker = itertools.count(), None
        self._arrivals: deque[float] = deque(maxlen=RECENT)
        self._queue: asyncio.PriorityQueue[Work] = asyncio.PriorityQueue()
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
        body = b''
        async for part in request.stream():
            body += part
            if len(body) > MAX_BYTES:
                raise HTTPException(413, f'body: expected at most {MAX_BYTES} bytes')
        slack = deadline_ms or (math.inf if budget else self._deadline)
        self._worker = self._worker or asyncio.create_task(self._work())
        now, answer = _now(), asyncio.get_running_loop().create_future()
        self._arrivals.append(now)
        work = Work(now + slack, next(self._numbers), body, budget, answer)
        self._queue.put_nowait(work)
        return await answer

    async def _work(self) -> None:
        """Answer queued requests in a loop, the most urgent first."""
        while True:
            work = await self._queue.get()
            if work.answer.done():  # the client has disconnected
                continue
            run = asyncio.to_thread(self._answer, work)
            (found,) = await asyncio.gather(run, return_exceptions=True)
            if work.answer.done():
                continue
            if isinstance(found, BaseException):
                work.answer.set_exception(found)
            else:
                work.answer.set_result(found)

    def _choose(self, slack: float) -> tuple[str, int]:
        """Choose a stitch; if all are too slow, raise an HTTPException."""
        now, waiting = _now(), self._queue.qsize() + 1
        times = {key: self.load * ms for key, ms in self.front.items()}
        # The first arrival starts the interval and is not counted.
        rate = (len(self._arrivals) - 1) / max(now - self._arrivals[0], 1)
        planned = slack / (1 + MARGIN * self.error)
        key = best_in_time(times, planned, waiting, rate) or best_in_time(
            times, slack, math.inf
        )
        if key is None:  # nothing runs that would show how the load changes
            self.load += RATE * (1 - self.load)
            fastest = min(times.values())
            after = {'Retry-After': str(math.ceil(waiting * fastest / 1000))}
            left = f'{max(slack, 0):.0f} ms are left'
            words = f'{left}; the fastest stitch takes {fastest:.0f}'
            raise HTTPException(503, words, after)
        return key

    def _answer(self, work: Work) -> Response:
        """Predict an image."""
        key = self._choose(work.deadline - _now())
        begin, runtime = _now(), self.runtime
        try:
            image = read_image(io.BytesIO(work.body))
        except Exception as error:  # decoders raise arbitrary exceptions
            raise HTTPException(400, f'image cannot be read: {error}') from error
        try:
            if work.budget is None:
                runtime.set_stitch(*key[::-1])
            else:
                runtime.set_budget(work.budget)
            (found,) = runtime.predict_batch([image])
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        precision, stitch = key = runtime.active_precision, runtime.active_stitch
        if runtime.manifest['task'] in ('segmentation', 'depth'):
            content, kind = as_png(found), 'image/png'
        else:
            about = describe(found, len(runtime.manifest['classes']))
            content, kind = json.dumps(about), 'application/json'
        elapsed = _now() - begin
        if key in self.front:
            ratio = min(max(elapsed / (self.load * self.front[key]), 0.5), 2)
            self.error += RATE * (abs(ratio - 1) - self.error)
            self.load *= ratio**RATE
        self._counter.inc(tags=dict(stitch=str(stitch), precision=precision))
        about = {'X-Stitch-Id': str(stitch), 'X-Precision': precision}
        about |= {'X-Milliseconds': f'{elapsed:.2f}'}
        return Response(content, 200, about, kind)


def _now() -> float:
    return time.monotonic() * 1000


# Replicas import this module, which tells the app what self is.
_Ingress = serve.ingress(app)(StitchService)


def build_service(settings: Mapping[str, Any]) -> serve.Application:
    """Build an application; in Ray's config files, an ``import_path`` with ``args``.

    Args:
        settings: Arguments of :class:`StitchService`, and Ray's ``options`` of its
            deployment, such as ``num_replicas`` or ``autoscaling_config``.
    """
    settings = dict(settings)
    options = QUEUE | settings.pop('options', {})
    options.setdefault('ray_actor_options', dict(num_cpus=settings.get('threads', 1)))
    service = serve.deployment(_Ingress, name='stitches')
    return service.options(**options).bind(**settings)
