"""A replica of a service, in this process and without a cluster."""

import asyncio
import io
import json
import math
import re
import threading

import numpy as np
import pytest
from PIL import Image

from snnet_mm.runtime import Detections
from snnet_mm.runtime.device import PROVIDERS
from snnet_mm.runtime.load import Load

FRONT = {('int8', 0): 10.0, ('fp32', 0): 20.0, ('fp32', 7): 40.0}


@pytest.fixture(scope='module')
def service():
    """The module; imported here, as collecting the tests needs no ray."""
    return pytest.importorskip('snnet_mm.serving.service', reason='ray is missing')


def png(height=4, width=6):
    file = io.BytesIO()
    Image.new('RGB', (width, height), (width, 0, 0)).save(file, 'PNG')
    return file.getvalue()


class Runtime:
    """Stands in for a bundle; notes stitches and widths of images."""

    task, channels = 'segmentation', 3

    def __init__(self, *args, **settings):
        shape = [1, self.channels, 64, 64]
        self.manifest = dict(task=self.task, classes=['a'], input=dict(shape=shape))
        self.ran = []

    def front(self):
        return dict(FRONT)

    def set_stitch(self, stitch, precision):
        self.active_stitch, self.active_precision = stitch, precision

    def set_budget(self, budget):
        if budget != '25ms':
            raise ValueError(f'budget={budget!r} is invalid')
        self.set_stitch(0, 'fp32')

    def predict_batch(self, images):
        width = images[0].shape[1]
        self.ran.append(((self.active_precision, self.active_stitch), width))
        if self.task == 'detection':
            box, score = np.float32([[1, 2, 4, 6]]), np.float32([0.5])
            return [Detections(box, score, np.array([2]), None)]
        return [images[0][..., 0] // 2]


class Request:
    """Stands in for an HTTP request, with its body in two parts."""

    def __init__(self, body):
        self.parts = body[:9], body[9:]

    async def stream(self):
        for part in self.parts:
            yield part


@pytest.fixture
def replica(service, monkeypatch):
    monkeypatch.setattr(service, 'StitchRuntime', Runtime)
    made = service.StitchService('a folder')
    monkeypatch.setattr(made.load, 'add', lambda ratio: False)  # times are those above
    return made


def ask(replica, *requests):
    """Send ``(body, deadline_ms[, budget])`` at once; return answers and errors."""

    async def run():
        asked = (replica.predict(Request(body), *more) for body, *more in requests)
        answers = asyncio.gather(*asked, return_exceptions=True)
        await settle()  # all are accepted
        gate.set()
        return await answers

    gate = occupy(replica)
    return asyncio.run(run())


async def settle():
    """Let all tasks run until they wait for something other than each other."""
    for _ in range(9):
        await asyncio.sleep(0)


def occupy(replica):
    """Occupy the thread of a replica until the event is set that is returned."""
    gate = threading.Event()
    replica._thread.submit(gate.wait, 60)
    return gate


def test_predict_runs_most_urgent_first_and_shares_slack(replica):
    # Of three that wait, 100 ms are enough for 20 each; later ones have more.
    bodies = [png(width=width) for width in (8, 6, 7)]
    found = ask(replica, *zip(bodies, (9000, 100, None), strict=True))
    assert [answer.status_code for answer in found] == [200] * 3
    ran = replica.runtime.ran
    assert [width for _, width in ran] == [6, 8, 7]
    assert ran[-1] == (('fp32', 7), 7)
    assert found[1].headers['X-Stitch-Id'] == '0'
    pixels = np.asarray(Image.open(io.BytesIO(found[0].body)))
    np.testing.assert_array_equal(pixels, np.full((4, 8), 4))


def test_predict_budget_of_request_selects_stitch(replica):
    good, wrong = ask(replica, (png(), None, '25ms'), (png(), None, '9s'))
    assert (good.headers['X-Precision'], good.headers['X-Stitch-Id']) == ('fp32', '0')
    assert (wrong.status_code, wrong.detail) == (400, "budget='9s' is invalid")


def test_predict_detections_are_json(service, replica, monkeypatch):
    monkeypatch.setattr(Runtime, 'task', 'detection')
    (answer,) = ask(service.StitchService('a folder'), (png(), None))
    (about,) = json.loads(answer.body)['objects']
    assert answer.media_type == 'application/json'
    assert (about['bbox'], about['category_id']) == ([1, 2, 3, 4], 3)


def test_predict_hopeless_request_is_dropped_and_load_recovers(replica):
    (answer,) = ask(replica, (png(), 5))
    assert (answer.status_code, answer.headers) == (503, {'Retry-After': '1'})
    assert replica.runtime.ran == []
    replica.load = Load(200.0)
    replica.load.add(200.0)
    assert [ask(replica, (png(), 5))[0].status_code for _ in range(9)] == [503] * 9
    assert replica.load.value == 200  # such requests are hopeless under any load
    statuses = [ask(replica, (png(), 900))[0].status_code for _ in range(30)]
    assert (statuses[0], statuses[-1]) == (503, 200)
    assert statuses == sorted(statuses, reverse=True)


class SlowRequest(Request):
    """A request whose body never ends."""

    async def stream(self):
        async for part in super().stream():
            yield part
        await asyncio.Event().wait()


def test_predict_slow_uploads_take_no_places(service, replica, monkeypatch):
    """Of one place; they are refused after some time."""
    replica._max_queue = 1

    async def run():
        slow = [replica.predict(SlowRequest(png()), None) for _ in range(70)]
        slow = [asyncio.create_task(request) for request in slow]
        await settle()
        status = (await replica.predict(Request(png()), None)).status_code
        return status, await asyncio.gather(*slow, return_exceptions=True)

    monkeypatch.setattr(service, 'MAX_SECONDS', 0.2)
    status, refused = asyncio.run(asyncio.wait_for(run(), 20))
    assert status == 200
    assert [error.status_code for error in refused] == [408] * 70
    assert refused[0].detail == 'body: expected within 0.2 s'
    assert len(replica.runtime.ran) == 1


def test_predict_full_queue_refuses(replica):
    replica._max_queue = 2
    found = ask(replica, *[(png(), None)] * 4)
    statuses = [answer.status_code for answer in found]
    assert statuses == [200, 200, 503, 503]
    assert found[2].detail == '2 requests are waiting'
    assert found[2].headers == {'Retry-After': '1'}
    assert ask(replica, (png(), None))[0].status_code == 200


FORM = b"""--x\r
Content-Disposition: form-data; name="file"; filename="a.png"\r
\r
%s\r
--x--"""


@pytest.mark.parametrize(
    ('body', 'why'),
    [
        (FORM % png(), 'the format is unknown; expected one of BMP, JPEG, PNG'),
        (b'{"image": "a"}', 'the format is unknown; expected one of BMP, JPEG, PNG'),
        (b'', 'the format is unknown; expected one of BMP, JPEG, PNG'),
        (png()[:-30], 'broken PNG file|[Tt]runcated'),
    ],
)
def test_predict_body_that_is_no_image_is_told_what_to_send(replica, body, why):
    (error,) = ask(replica, (body, None))
    assert error.status_code == 400
    assert re.match(f'image cannot be read: .*({why})', error.detail)
    assert '--data-binary @FILE' in error.detail
    assert '0x' not in error.detail


@pytest.mark.parametrize(
    ('body', 'status'),
    [(png()[:-30], 400), (png(30, 40), 400), (b'x' * 1001, 413)],
)
def test_predict_malformed_body_is_refused(service, replica, monkeypatch, body, status):
    monkeypatch.setattr(service, 'MAX_BYTES', 1000)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 500)
    error, good = ask(replica, (body, None), (png(), None))
    assert (error.status_code, good.status_code) == (status, 200)


def test_predict_client_that_has_gone_is_left_out(replica):
    def predict(width):
        return asyncio.create_task(replica.predict(Request(png(width=width)), 9000))

    async def run():
        tasks = [predict(width) for width in (5, 6)]
        await settle()  # both are accepted
        assert replica._queue.qsize() == 2
        tasks[1].cancel()
        await asyncio.wait(tasks[1:])
        gate.set()
        await tasks[0]
        await predict(9)

    gate = occupy(replica)
    asyncio.run(run())
    assert [width for _, width in replica.runtime.ran] == [5, 9]


@pytest.mark.parametrize(
    ('slack', 'waiting', 'error', 'load', 'key'),
    [
        (40, 1, 0, 1, ('fp32', 7)),
        (39, 1, 0, 1, ('fp32', 0)),
        (40, 2, 0, 1, ('fp32', 0)),
        (40, 9, 0, 1, ('int8', 0)),  # not all can be in time
        (45, 1, 0.2, 1, ('fp32', 0)),
        (45, 1, 0.2, 3, ('int8', 0)),
        (11, 1, 0.2, 1, ('int8', 0)),
        (math.inf, 2, 0.2, 1, ('fp32', 7)),
    ],
)
def test_choose_shares_slack_and_follows_load(
    replica, slack, waiting, error, load, key
):
    for i in range(waiting - 1):
        replica._queue.put(i)
    replica.load.value = load
    replica.load.error = lambda calls: error
    assert replica._choose(slack) == key


def test_stitch_service_wrong_settings_are_refused(service, replica, monkeypatch):
    for key in ('deadline_ms', 'max_queue'):
        with pytest.raises(ValueError, match=f'{key}=0 is invalid'):
            service.StitchService('a folder', **{key: 0})
    monkeypatch.setattr(Runtime, 'channels', 4)
    with pytest.raises(ValueError, match='bundle=.* is invalid'):
        service.StitchService('a folder')


def test_build_service_takes_options_of_ray(service, monkeypatch):
    (path,) = service.app.openapi()['paths'].items()
    names = [parameter['name'] for parameter in path[1]['post']['parameters']]
    assert (path[0], names) == ('/predict', ['deadline_ms', 'budget'])
    options = dict(num_replicas=3, max_queued_requests=5)
    app = service.build_service(dict(bundle='a', threads=2, options=options))
    made = app._bound_deployment
    assert made.max_ongoing_requests == 1000  # more than uploads at a time
    assert made.init_kwargs == dict(bundle='a', threads=2)
    assert (made.num_replicas, made.max_queued_requests) == (3, 5)
    assert made.ray_actor_options == dict(num_cpus=2, num_gpus=0)
    onnxruntime = pytest.importorskip('onnxruntime')
    installed = [PROVIDERS['cuda']]
    monkeypatch.setattr(onnxruntime, 'get_available_providers', lambda: installed)
    app = service.build_service(dict(bundle='a', providers=['tensorrt', 'cuda']))
    assert app._bound_deployment.ray_actor_options['num_gpus'] == 1
