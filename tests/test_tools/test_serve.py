"""A real service on Ray: its predictions, refused requests, metrics and its end.

Nothing depends on how fast the machine is: requests have no deadline, and Ray gives
none up.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import cv2
import numpy as np
import pytest
from small import smooth_images

from snnet_mm.runtime import StitchRuntime

pytest.importorskip('ray.serve', reason='ray is missing')
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PORT, METRICS = 8471, 8472
STARTS = 5  # Ray gives its own processes 60 s, not enough on a busy machine
(IMAGE,) = smooth_images([(64, 64)])
BODY = cv2.imencode('.png', IMAGE[..., ::-1])[1].tobytes()


@pytest.fixture(scope='module')
def service(bundle, tmp_path_factory):
    """The process of a service, and its log."""
    log = tmp_path_factory.mktemp('service') / 'log'
    command = [sys.executable, ROOT / 'tools/serve.py', bundle]
    command += ['--port', str(PORT), '--metrics-port', str(METRICS)]
    command += ['--timeout', '900', '--max-queue', '40']
    env = os.environ | dict(RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S='600')
    for _ in range(STARTS):
        with log.open('w') as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=env)
        while process.poll() is None and 'Serving' not in log.read_text():
            time.sleep(0.3)
        if process.poll() is None or 'proxies not available' not in log.read_text():
            break
    assert process.poll() is None, log.read_text()
    yield process, log
    process.terminate()
    process.wait(300)


def send(path, body=BODY, port=PORT):
    """Send a request; return status, body and headers."""
    try:
        with urlopen(f'http://127.0.0.1:{port}{path}', body) as answer:
            return answer.status, answer.read(), answer.headers
    except HTTPError as error:
        return error.code, error.read(), error.headers


def test_serve_predicts_as_the_runtime(service, bundle):
    runtime = StitchRuntime(bundle)
    for query in ('', '?budget=1.5G'):
        status, body, headers = send(f'/predict{query}')
        assert status == 200
        runtime.set_stitch(int(headers['X-Stitch-Id']))
        mask = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(mask, runtime(IMAGE))
    assert headers['X-Stitch-Id'] == '0'


def test_serve_refuses_malformed_requests(service):
    """Those that never reach a replica."""
    assert send('/predict', None)[0] == 405
    assert send('/predict?deadline_ms=-1')[0] == 422


def test_serve_answers_beside_slow_uploads(service):
    """Of more clients than places; and tells those of forms what to send."""
    head = b'POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nx'
    with ExitStack() as stack:
        for _ in range(90):
            slow = stack.enter_context(socket.create_connection(('127.0.0.1', PORT)))
            slow.sendall(head)
        time.sleep(1)
        assert [send('/predict')[0] for _ in range(5)] == [200] * 5
    form = b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n%s\r\n--x--' % BODY
    status, body, _ = send('/predict', form)
    assert status == 400
    assert b'curl --data-binary @FILE' in body


def replicas(process):
    """Return the ids of the replicas among the descendants of a process."""
    listed = subprocess.check_output(['ps', '-eo', 'pid=,ppid=,args='], text=True)
    family, found = {process.pid}, set()
    for pid, parent, args in sorted(
        (int(pid), int(parent), args)
        for pid, parent, args in (
            line.split(maxsplit=2) for line in listed.splitlines()
        )
    ):
        if parent in family:
            family.add(pid)
            found |= {pid} if 'ServeReplica' in args else set()
    return found


def test_serve_replaces_a_killed_replica(service):
    killed = replicas(service[0])
    assert len(killed) == 1
    os.kill(*killed, signal.SIGKILL)
    end, statuses = time.monotonic() + 600, []
    while not replicas(service[0]) - killed or statuses[-1] != 200:
        assert time.monotonic() < end, service[1].read_text()
        statuses.append(send('/predict')[0])
        time.sleep(0.3)
    assert {*statuses} <= {200, 500, 503}


def test_serve_counts_predictions(service):
    send('/predict')
    end, counted = time.monotonic() + 600, False
    while not counted:
        assert time.monotonic() < end, service[1].read_text()
        time.sleep(0.3)
        with suppress(URLError):
            found = send('/metrics', None, METRICS)[1]
            counted = b'snnet_predictions_total{' in found


def test_serve_answers_accepted_requests_at_its_end(service):
    process, log = service
    with ThreadPoolExecutor(40) as pool:
        sent = [pool.submit(send, '/predict') for _ in range(40)]
        time.sleep(0.3)
        process.terminate()
        assert {answer.result()[0] for answer in sent} <= {200, 404, 503}
    assert process.wait(300) == 0
    assert 'Stopped' in log.read_text()
