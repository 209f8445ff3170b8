"""A real service on Ray: faults, load and its end."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from narrow_toy import smooth_images
from old_torch import writes_onnx

from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.runtime import LATENCIES

aiohttp = pytest.importorskip('aiohttp', reason='ray is missing')
pytest.importorskip('ray.serve', reason='ray is missing')
pytestmark = [pytest.mark.slow, writes_onnx]
ROOT = Path(__file__).parents[2]
PORT, MALFORMED = 8471, 10_000
URL = f'http://127.0.0.1:{PORT}'
(IMAGE,) = smooth_images([(64, 64)])
BODY = cv2.imencode('.png', IMAGE[..., ::-1])[1].tobytes()


class Service:
    def __init__(self, bundle, folder):
        self.bundle, self.settings = bundle, folder / 'settings.json'
        self.settings.write_text('{"timeout_s": 5}')
        self.log = folder / 'log'
        command = [sys.executable, ROOT / 'tools/serve.py', bundle]
        command += ['--port', str(PORT), '--settings', self.settings]
        with self.log.open('w') as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_for(lambda: 'Serving' in self.log.read_text(), 180)

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.3)

    def replica(self, name):
        """Return the process id of a replica below this service."""
        parents = {}
        for stat in Path('/proc').glob('[0-9]*/stat'):
            try:
                text = stat.read_text()
            except OSError:
                continue
            parents[int(stat.parent.name)] = int(text.rpartition(')')[2].split()[1])
        for pid in parents:
            line, above = Path(f'/proc/{pid}/cmdline'), pid
            while above in parents and above != self.process.pid:
                above = parents[above]
            title = line.read_text() if line.exists() else ''
            if above == self.process.pid and f'ServeReplica:snnet:{name}' in title:
                return pid
        return None

    def memory(self, name):
        pages = Path(f'/proc/{self.replica(name)}/statm').read_text().split()[1]
        return int(pages) * os.sysconf('SC_PAGE_SIZE') / 1e6


@pytest.fixture(scope='module')
def bundle(bundle, tmp_path_factory):
    """A bundle whose stitches are both on the front, however long they take here."""
    folder = tmp_path_factory.mktemp('served') / 'bundle'
    shutil.copytree(bundle, folder)
    StitchRuntime(folder, 1).latencies()
    path = folder / LATENCIES
    ((setup, times),) = json.loads(path.read_text()).items()
    ordered = {name: 1.0 + place for place, name in enumerate(sorted(times))}
    path.write_text(json.dumps({setup: ordered}))
    assert [stitch for _, stitch in StitchRuntime(folder, 1).front()] == [0, 1]
    return folder


@pytest.fixture(scope='module')
def service(bundle, tmp_path_factory):
    made = Service(bundle, tmp_path_factory.mktemp('service'))
    yield made
    made.process.terminate()
    made.process.wait(60)


def send(requests, at_once=200):
    """Send ``(path, body)``, all at once or so many; return statuses and bodies."""

    async def run():
        limit, turn = aiohttp.TCPConnector(limit=0), asyncio.Semaphore(at_once)
        async with aiohttp.ClientSession(connector=limit) as session:

            async def one(path, body):
                method = 'GET' if body is None else 'POST'
                async with turn, session.request(method, URL + path, data=body) as a:
                    return a.status, await a.read(), a.headers

            return await asyncio.gather(*(one(*r) for r in requests))

    return asyncio.run(run())


def healthy():
    return send([('/healthz', None)])[0][0] == 200


def predict(query=''):
    return send([(f'/predict{query}', BODY)])[0]


def test_predictions_are_those_of_the_runtime(service, bundle):
    status, body, headers = predict()
    assert status == 200
    runtime = StitchRuntime(bundle)
    runtime.set_stitch(int(headers['X-Stitch-Id']))
    mask = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(mask, runtime(IMAGE))
    assert b'snnet_requests_total{status="200"} 1.0' in send([('/metrics', None)])[0][1]


def test_settings_change_while_it_runs(service):
    before = service.replica('worker')
    service.settings.write_text('{"timeout_s": 5, "max_queue": 0}')
    os.kill(service.process.pid, signal.SIGHUP)
    service.wait_for(lambda: 'Settings are as before' in service.log.read_text())
    service.settings.write_text('{"timeout_s": 5, "stitches": [0]}')
    os.kill(service.process.pid, signal.SIGHUP)
    service.wait_for(lambda: 'Settings: {' in service.log.read_text())
    assert predict()[2]['X-Stitch-Id'] == '0'
    assert service.replica('worker') == before  # nothing was started again


def test_200_connections_at_once(service):
    found = send([('/predict?deadline_ms=4000', BODY)] * 200)
    statuses = [status for status, _, _ in found]
    assert {*statuses} <= {200, 503}
    assert statuses.count(200) > 20
    assert all('Retry-After' in about for s, _, about in found if s == 503)


def test_malformed_requests_are_answered_and_leave_nothing(service):
    wrong = [('/predict', b'x' * 99), ('/predict?deadline_ms=-1', BODY), ('/no', None)]
    wrong += [('/predict', BODY[:40]), ('/predict', None), ('/predict', BODY[:-60])]
    wanted = [415, 400, 404, 415, 405, 400]
    send(wrong * 50, 50)
    before = service.memory('front'), service.memory('worker')
    for _ in range(10):
        number = MALFORMED // 10 // len(wrong)
        found = send(wrong * number, 50)
        assert [status for status, _, _ in found] == wanted * number
    after = service.memory('front'), service.memory('worker')
    assert all(b - a < 30 for a, b in zip(before, after, strict=True)), (before, after)
    assert predict()[0] == 200


def test_a_slow_client_holds_up_nobody(service):
    async def run():
        reader, writer = await asyncio.open_connection('127.0.0.1', PORT)
        head = (
            f'POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n'
        )
        writer.write(head.encode() + BODY[:100])
        await writer.drain()
        others = await asyncio.to_thread(lambda: [predict()[0] for _ in range(5)])
        line = await asyncio.wait_for(reader.readline(), 20)
        writer.close()
        return others, line

    others, line = asyncio.run(run())
    assert others == [200] * 5
    assert b' 408 ' in line


def test_a_killed_replica_loses_no_request(service):
    pid = service.replica('worker')
    child = subprocess.Popen(['sh', '-c', f'sleep 0.5; kill -9 {pid}'])
    found = send([('/predict', BODY)] * 120, 30)
    child.wait()
    assert {status for status, _, _ in found} <= {200, 503}
    service.wait_for(healthy)
    assert predict()[0] == 200
    assert service.replica('worker') != pid


def test_a_bundle_that_goes_and_comes_again(service, bundle):
    away = bundle.with_name('away')
    bundle.rename(away)
    assert predict()[0] == 200  # its graphs are open
    os.kill(service.replica('worker'), signal.SIGKILL)
    time.sleep(1)
    status, body, _ = predict()
    away.rename(bundle)
    assert (status, body) == (503, b'no replica answers\n')
    service.wait_for(healthy, 120)
    assert predict()[0] == 200


def test_accepted_requests_are_answered_at_the_end(service):
    async def run():
        sending = asyncio.to_thread(send, [('/predict', BODY)] * 40)
        task = asyncio.create_task(sending)
        await asyncio.sleep(0.3)
        service.process.terminate()
        return await task

    found = asyncio.run(run())
    assert {status for status, _, _ in found} <= {200, 503}
    assert service.process.wait(90) == 0
    assert 'all accepted requests were answered' in service.log.read_text()
