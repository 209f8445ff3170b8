"""A replica and the entrance of a service, in this process and without a cluster."""

import asyncio
import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

service = pytest.importorskip('snnet_mm.serving.service', reason='ray is missing')
RayActorError = pytest.importorskip('ray.exceptions').RayActorError
Request = pytest.importorskip('starlette.requests').Request

FRONT = {('int8', 0): 10.0, ('fp32', 0): 20.0, ('fp32', 7): 40.0}


def png(height=4, width=6):
    file = io.BytesIO()
    Image.new('RGB', (width, height), (width, 0, 0)).save(file, 'PNG')
    return file.getvalue()


class Runtime:
    """Stands in for a bundle; notes stitches and widths of images."""

    def __init__(self, *args):
        self.manifest = dict(ranked_by=dict(metric='mIoU'), largest_flops=8e9)
        self.manifest['input'] = dict(shape=[1, 3, 64, 64])
        about = dict(kind='anchor', route='a route', metrics=dict(mIoU=40.0))
        self.stitches = {i: dict(about, flops=1e9 * (i + 1), params=5) for i in (0, 7)}
        self.ran, self.active = [], None

    def front(self):
        return dict(FRONT)

    def set_stitch(self, stitch, precision):
        self.active = precision, stitch

    def predict_batch(self, images):
        if images[0].shape[1] == 2:
            raise ValueError('image=(2, 2); allowed: larger ones')
        if images[0].shape[1] == 3:
            raise MemoryError('too much')
        self.ran.append((self.active, images[0].shape[1]))
        return [images[0][..., 0] // 2]


def settings(**changed):
    return service.check_settings(changed, Runtime())


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(service, 'StitchRuntime', Runtime)
    made = service.Worker('a folder')
    made.reconfigure(settings())
    made._learn = lambda *_: None  # times stay those above
    return made


def answers_of(worker, *requests):
    async def run():
        asked = [worker.predict(*request, settings()) for request in requests]
        return await asyncio.gather(*asked)

    return asyncio.run(run())


def test_the_most_urgent_goes_first_and_slack_is_shared(worker):
    # Of three that wait, 100 ms are enough for 20 each; later ones have more.
    found = answers_of(
        worker, (png(width=8), 9000), (png(width=6), 100), (png(width=7), None)
    )
    assert [a.status for a in found] == [200] * 3
    ran = worker._runtime.ran
    assert [width for _, width in ran] == [6, 8, 7]
    assert ran[-1] == (('fp32', 7), 7)
    assert found[1].about['X-Stitch-Id'] == '0'
    pixels = np.asarray(Image.open(io.BytesIO(found[0].body)))
    np.testing.assert_array_equal(pixels, np.full((4, 8), 4))


def test_a_hopeless_request_is_dropped(worker):
    (answer,) = answers_of(worker, (png(), 5))
    assert (answer.status, answer.about) == (503, {'Retry-After': '1'})
    assert answer.body.decode().endswith('ms are left; the fastest stitch takes 10\n')
    assert worker._runtime.ran == []


def test_bad_images_are_the_callers_fault(worker):
    bodies = png()[:-30], png(2, 2), png(3, 3), png()
    found = answers_of(worker, *((body, None) for body in bodies))
    assert [a.status for a in found] == [400, 400, 500, 200]
    assert found[2].body == b'MemoryError: too much\n'
    assert found[0].body.startswith(b'image cannot be read: ')
    assert found[1].body == b'image=(2, 2); allowed: larger ones\n'


def test_settings_come_with_requests(worker):
    (answer,) = asyncio.run(gather(worker.predict(png(), None, settings(stitches=[0]))))
    assert answer.about['X-Stitch-Id'] == '0'
    assert [about['id'] for about in worker.about()] == [0, 0]
    front = front_of(Handle(GOOD))
    front.reconfigure(settings(budget='25ms'))
    ask(front, request(png()))
    assert front._worker.settings == settings(budget='25ms')


async def gather(*calls):
    return await asyncio.gather(*calls)


def test_a_client_that_has_gone_is_left_out(worker):
    def predict(body):
        return asyncio.create_task(worker.predict(body, 900, settings()))

    async def run():
        tasks = [predict(png(width=w)) for w in (5, 6)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await tasks[0]
        await predict(png(width=9))

    asyncio.run(run())
    assert [width for _, width in worker._runtime.ran] == [5, 9]


def test_times_follow_those_measured(worker):
    for _ in range(40):
        service.Worker._learn(worker, ('fp32', 0), 30)
    assert worker._times['fp32', 0] == pytest.approx(30, rel=0.01)
    # Of the others, that share of it which is the load.
    assert worker._times['int8', 0] == pytest.approx(10 * 1.5 ** (1 / 3), rel=0.02)


def test_times_recover_while_all_requests_are_dropped(worker):
    worker._times = {key: 20 * ms for key, ms in FRONT.items()}

    async def one_by_one():
        return [await worker.predict(png(), 100, settings()) for _ in range(30)]

    found = [answer.status for answer in asyncio.run(one_by_one())]
    assert found[0] == 503
    assert found[-1] == 200
    assert found == sorted(found, reverse=True)
    assert worker._times['int8', 0] < 100
    before = dict(worker._times)
    worker._recover(5)  # too little for any stitch, with load or without
    assert worker._times == before


def test_where_times_are_uncertain_a_cheaper_stitch_runs(worker):
    worker._error = 0
    worker._arrivals.append(-1e9)
    assert worker._choose(45, 1, 0) == ('fp32', 7)
    worker._error = 0.1
    assert worker._choose(45, 1, 0) == ('fp32', 0)
    assert worker._choose(11, 1, 0) == ('int8', 0)
    assert worker._choose(9, 1, 0) is None


def test_settings_bound_the_stitches():
    assert settings()['max_queue'] == 64
    keys = [*service.candidates(Runtime(), settings(budget='25ms'))]
    assert keys == [('int8', 0), ('fp32', 0)]
    assert [*service.candidates(Runtime(), settings(stitches=[7]))] == [('fp32', 7)]
    assert len(service.candidates(Runtime(), settings(budget='1G'))) == 2
    for wrong, words in (
        (dict(budgets='1G'), "settings='budgets'; allowed: .* did you mean 'budget'"),
        (dict(budget='5ms'), "budget='5ms'; allowed: what buys the fastest stitch"),
        (dict(stitches=[3]), r'stitches=\[3\]; allowed: a list of some of \[0, 7\]'),
        (dict(max_queue=0), 'max_queue=0; allowed: whole numbers from 1'),
        (dict(timeout_s=None), 'timeout_s=None; allowed: positive numbers'),
    ):
        with pytest.raises(ValueError, match=words):
            settings(**wrong)


class Handle:
    """Stands in for the replicas of a deployment."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        self.predict = SimpleNamespace(remote=self._predict)
        self.about = SimpleNamespace(remote=self._about)

    async def _predict(self, body, left, settings):
        self.asked.append((len(body), left))
        self.settings = settings
        answer = self.answers.pop(0) if self.answers else await asyncio.sleep(60)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _about(self):
        return [dict(id=0)]


ABOUT = {'X-Stitch-Id': '7', 'X-Precision': 'fp32', 'X-Milliseconds': '12.5'}
GOOD = service.Answer(200, b'a mask', 'image/png', ABOUT)


def request(body=b'', path='/predict', method='POST', query='', length=None, wait=0):
    parts = iter([body[:9], body[9:]])

    async def receive():
        await asyncio.sleep(wait)
        return dict(type='http.request', body=next(parts), more_body=True)

    async def receive_all():
        message = await receive()
        return message | dict(body=body, more_body=False)

    headers = [] if length is None else [(b'content-length', str(length).encode())]
    scope = dict(type='http', path=path, method=method, headers=headers)
    scope |= dict(query_string=query.encode(), root_path='')
    return Request(scope, receive_all if len(body) < 50 or not wait else receive)


def front_of(handle, **changed):
    front = service.Front(handle)
    front.reconfigure(settings(**changed))
    return front


def ask(front, *requests):
    async def run():
        return await asyncio.gather(*(front(r) for r in requests))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ('wanted', 'words', 'about'),
    [
        (404, '/a; allowed: /predict, /stitches, /metrics, /healthz', dict(path='/a')),
        (405, 'GET /predict; allowed: POST', dict(method='GET')),
        (400, "deadline_ms='x'; allowed: pos", dict(query='deadline_ms=x')),
        (400, "deadline_ms='nan'; allowed: pos", dict(query='deadline_ms=nan')),
        (413, 'body; allowed: 500 bytes or fewer', dict(length=501)),
        (413, 'body; allowed: 500 bytes or fewer', dict(body=b'x' * 501)),
        (415, 'body of 5 bytes; allowed: images', dict(body=b'hello')),
        (413, 'image of 99x9; allowed: 800 pixels', dict(body=png(9, 99))),
        (408, 'body; allowed: 0.05 s for it', dict(body=png(), wait=1)),
    ],
)
def test_bad_requests_get_a_sentence(wanted, words, about):
    handle = Handle(GOOD)
    front = front_of(handle, max_bytes=500, max_pixels=800, timeout_s=0.05)
    (answer,) = ask(front, request(**about))
    assert answer.status_code == wanted
    assert answer.body.decode().startswith(words)
    assert handle.asked == []
    assert front._waiting == 0


def test_a_prediction_and_its_counts():
    handle = Handle(GOOD)
    front = front_of(handle, deadline_ms=900)
    (answer,) = ask(front, request(png()))
    assert (answer.status_code, answer.body) == (200, b'a mask')
    assert answer.headers['x-stitch-id'] == '7'
    size, left = handle.asked[0]
    assert size == len(png())
    assert 800 < left <= 900
    (found,) = ask(front, request(path='/metrics', method='GET'))
    lines = found.body.decode().splitlines()
    assert 'snnet_requests_total{status="200"} 1.0' in lines
    assert 'snnet_predictions_total{precision="fp32",stitch="7"} 1.0' in lines
    assert 'snnet_prediction_seconds_sum 0.0125' in lines
    assert 'snnet_waiting 0.0' in lines
    (found,) = ask(front, request(path='/healthz', method='GET'))
    assert found.status_code == 200


def test_a_dead_replica_is_replaced_once():
    handle = Handle(RayActorError(), GOOD, RayActorError(), RayActorError())
    front = front_of(handle)
    found = [ask(front, request(png()))[0] for _ in range(2)]
    assert [a.status_code for a in found] == [200, 503]
    assert found[1].headers['retry-after'] == '1'
    assert len(handle.asked) == 4


def test_a_full_queue_sheds_and_late_answers_are_given_up():
    front = front_of(Handle(), max_queue=2, timeout_s=0.2)
    found = ask(front, *(request(png(), query='deadline_ms=50') for _ in range(3)))
    assert [a.status_code for a in found] == [503] * 3
    assert found[2].body == b'2 requests wait; no more are taken\n'
    assert found[0].body == b'no replica answers\n'
    (metrics,) = ask(front, request(path='/metrics', method='GET'))
    assert 'misses_total{why="shed"} 1.0' in metrics.body.decode()
    assert 'misses_total{why="dropped"} 2.0' in metrics.body.decode()


def test_stopping_waits_for_accepted_requests():
    done = []

    async def run():
        handle = Handle()
        front = front_of(handle, timeout_s=0.2)
        task = asyncio.create_task(front(request(png())))
        await asyncio.sleep(0.05)
        stop = asyncio.create_task(front.drain())
        await asyncio.sleep(0)
        done.append((await front(request(png()))).body)
        done.append(stop.done())
        await stop
        done.append((task.done(), (await task).status_code))

    asyncio.run(run())
    assert done[:2] == [b'the service stops\n', False]
    assert done[2] == (True, 503)  # the replica never answered
