"""Headless Chromium, driven over the pipe of its debugging protocol."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from tempfile import TemporaryDirectory

CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
OPTIONS = ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe']


class Page:
    """A browser tab that evaluates scripts; see :func:`open_page`."""

    def __init__(self, process, to, back):
        self._process, self._to, self._back = process, to, back
        self._calls, self._session = 0, None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        found = self.call('Target.attachToTarget', targetId=target, flatten=True)
        self._session = found['sessionId']

    def call(self, method, **params):
        self._calls += 1
        message = dict(id=self._calls, method=method, params=params)
        if self._session:
            message['sessionId'] = self._session
        self._to.write(json.dumps(message).encode() + b'\0')
        self._to.flush()
        while True:  # skip events
            answer = json.loads(self._read())
            if answer.get('id') == self._calls:
                assert 'error' not in answer, answer
                return answer['result']

    def _read(self):
        text = bytearray()
        while (byte := self._back.read(1)) != b'\0':
            assert byte, 'the browser ended'
            text += byte
        return text

    def run(self, script):
        """Return the value of an expression; a promise is awaited."""
        settings = dict(awaitPromise=True, returnByValue=True)
        found = self.call('Runtime.evaluate', expression=script, **settings)
        assert 'exceptionDetails' not in found, found['exceptionDetails']
        return found['result'].get('value')

    def wait(self, condition, seconds=300):
        """Wait until an expression is true in the page."""
        script = f"""new Promise((resolve, reject) => {{
            const end = Date.now() + {1000 * seconds};
            const look = () => ({condition}) ? resolve(true)
              : Date.now() > end ? resolve(document.body?.innerText)
              : setTimeout(look, 50);
            look(); }})"""
        found = self.run(script)
        assert found is True, f'{condition}: {found}'


@contextlib.contextmanager
def open_page(url):
    """Open a page in a separate browser."""
    (theirs, to), (back, ours) = os.pipe(), os.pipe()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol uses file descriptors 3 and 4.
        script = f'exec "$@" 3<&{theirs} 4>&{ours}'
        command = ['bash', '-c', script, 'bash', CHROMIUM, *OPTIONS]
        command.append(f'--user-data-dir={profile}')
        process = subprocess.Popen(
            command, pass_fds=(theirs, ours), stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(ours)
        try:
            with open(to, 'wb') as to, open(back, 'rb') as back:
                page = Page(process, to, back)
                page.call('Page.navigate', url=url)
                yield page
        finally:
            process.terminate()
            process.wait()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder):
    """Serve a folder and yield the address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()
