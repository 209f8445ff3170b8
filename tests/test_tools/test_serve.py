"""A real service on Ray: load, malformed requests, a killed replica, and its end.

Nothing depends on how fast the machine is: requests have no deadline, and Ray gives
none up.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from old_torch import writes_onnx
from toy import smooth_images

from snnet_mm.runtime import StitchRuntime

aiohttp = pytest.importorskip('aiohttp', reason='ray is missing')
pytest.importorskip('ray.serve', reason='ray is missing')
pytestmark = [pytest.mark.slow, writes_onnx]
ROOT = Path(__file__).parents[2]
PORT, METRICS = 8471, 8472
STARTS = 5  # Ray gives its own processes 60 s, not enough on a busy machine
(IMAGE,) = smooth_images([(64, 64)])
BODY = cv2.imencode('.png', IMAGE[..., ::-1])[1].tobytes()


class Service:
    def __init__(self, bundle, folder):
        self.bundle, self.log = bundle, folder / 'log'
        command = [sys.executable, ROOT / 'tools/serve.py', bundle]
        command += ['--port', str(PORT), '--metrics-port', str(METRICS)]
        command += ['--timeout', '900', '--max-queue', '100']
        env = os.environ | dict(RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S='600')
        for _ in range(STARTS):
            with self.log.open('w') as log:
                outputs = dict(stdout=log, stderr=log, env=env)
                self.process = subprocess.Popen(command, **outputs)
            while self.process.poll() is None:
                if 'Serving' in self.log.read_text():
                    return
                time.sleep(0.3)
            if 'proxies not available' not in self.log.read_text():
                break
        pytest.fail(self.log.read_text())

    def wait_for(self, condition, seconds=600):
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.3)

    def replica(self):
        """Return the process id of the replica below this service."""
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                title = (folder / 'cmdline').read_text()
            except OSError:
                continue
            if 'ServeReplica:snnet' in title:
                return int(folder.name)
        return None


@pytest.fixture(scope='module')
def service(bundle, tmp_path_factory):
    made = Service(bundle, tmp_path_factory.mktemp('service'))
    yield made
    made.process.terminate()
    made.process.wait(300)


def send(requests, port=PORT):
    """Send ``(path, body)`` at once; return statuses, bodies and headers."""

    async def run():
        settings = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(None)
        session = aiohttp.ClientSession(connector=settings[0], timeout=settings[1])
        async with session:

            async def one(path, body):
                method, url = 'GET' if body is None else 'POST', f'127.0.0.1:{port}'
                async with session.request(
                    method, f'http://{url}{path}', data=body
                ) as a:
                    return a.status, await a.read(), a.headers

            return await asyncio.gather(*(one(*r) for r in requests))

    return asyncio.run(run())


def predict(query=''):
    return send([(f'/predict{query}', BODY)])[0]


def test_predictions_equal_those_of_runtime(service, bundle):
    runtime = StitchRuntime(bundle)
    for query in ('', '?budget=9s', f'?budget={runtime.stitches[0]["flops"] / 1e9}G'):
        status, body, headers = predict(query)
        if 's' in query[-1:]:
            assert status == 400
            continue
        assert status == 200
        runtime.set_stitch(int(headers['X-Stitch-Id']))
        mask = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(mask, runtime(IMAGE))
    assert headers['X-Stitch-Id'] == '0'


def test_load_is_answered_or_shed_by_ray(service):
    found = send([('/predict', BODY)] * 250)
    statuses = [status for status, _, _ in found]
    assert {*statuses} <= {200, 503}
    assert statuses.count(200) >= 100  # the replica accepts so many at once
    assert predict()[0] == 200


def test_malformed_requests_are_refused_and_harm_nothing(service):
    wrong = {
        ('/predict', b'x' * 99): 415,
        ('/predict', BODY[:40]): 415,
        ('/predict', BODY[:-60]): 400,
        ('/predict', None): 405,
        ('/predict?deadline_ms=-1', BODY): 422,
        ('/predict?deadline_ms=x', BODY): 422,
        ('/no', None): 404,
    }
    before = service.replica()
    for _ in range(20):
        found = send(wrong)
        assert [status for status, _, _ in found] == [*wrong.values()]
    assert predict()[0] == 200
    assert service.replica() == before


def test_killed_replica_is_replaced(service):
    before = service.replica()
    os.kill(before, signal.SIGKILL)
    service.wait_for(lambda: predict()[0] == 200)
    assert service.replica() != before


def test_metrics_of_ray_count_predictions(service):
    def counted():
        try:
            (found,) = send([('/metrics', None)], METRICS)
        except aiohttp.ClientError:
            return False
        return b'snnet_predictions_total{' in found[1]

    predict()
    service.wait_for(counted)


def test_accepted_requests_are_answered_at_the_end(service):
    async def run():
        sending = asyncio.to_thread(send, [('/predict', BODY)] * 40)
        task = asyncio.create_task(sending)
        await asyncio.sleep(0.3)
        service.process.terminate()
        return await task

    found = asyncio.run(run())
    assert {status for status, _, _ in found} <= {200, 404, 503}
    assert service.process.wait(300) == 0
    assert 'Stopped' in service.log.read_text()
