"""tools/web_demo.py, and its page in a headless Chromium."""

import json
import re
import runpy
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import cv2
import numpy as np
import pytest
from manifests import path_of, write_bundle
from numpy.testing import assert_array_equal
from old_torch import writes_onnx
from small import smooth_images

import snnet_mm as sn
from snnet_mm.runtime.resizing import resize_image

onnxruntime = pytest.importorskip('onnxruntime')

TOOLS = Path(__file__).parents[2] / 'tools'
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
# The page sends what it shows to its server.
SCRIPT = """<script type="module">
  const until = async (holds) => {
    while (!holds()) await new Promise((go) => setTimeout(go, 50));
  };
  %s
  fetch('/', { method: 'POST', body: JSON.stringify(shown) });
</script>"""
# Stitches at both places of a slider: the front of those in the bundle.
MOVE = """const shown = [];
  await until(() => window.demo?.views[0].found);
  const view = demo.views[0], url = 'images/0.png';
  demo.loadImage(url);
  for (const [place, stitch] of [[1, 2], [0, 0]]) {
    view.slider.value = place;
    view.slider.dispatchEvent(new Event('input'));
    await until(() => view.found?.stitch === stitch && view.found.url === url);
    shown.push([stitch, [...view.found.map], view.svg.getAttribute('aria-label')]);
  }"""
FAIL = """const problem = document.getElementById('problem');
  await until(() => !problem.hidden);
  const shown = problem.textContent;"""


def in_browser(site, script, seconds=300):
    """Open the page of a folder, and return what its script has shown."""
    sent = Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self):
            sent.put(json.loads(self.rfile.read(int(self.headers['Content-Length']))))

        def log_message(self, *args):
            pass

    page = (site / 'index.html').read_text()
    (site / 'test.html').write_text(page + SCRIPT % script)
    handler = partial(Handler, directory=str(site))
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        profile = f'--user-data-dir={site / "profile"}'
        options = '--headless', '--no-sandbox', '--disable-gpu', profile
        url = f'http://127.0.0.1:{server.server_port}/test.html'
        process = subprocess.Popen([CHROMIUM, *options, url], stderr=subprocess.DEVNULL)
        try:
            return sent.get(timeout=seconds)
        finally:
            process.terminate()
            process.wait()
            server.shutdown()


def test_web_demo_copies_files_of_the_bundle(run_here, tmp_path):
    bundle, scripts = tmp_path / 'bundle', tmp_path / 'scripts'
    for folder in (bundle, scripts):
        folder.mkdir()
    for name in runpy.run_path(str(TOOLS / 'web_demo.py'))['SCRIPTS']:
        (scripts / name).write_bytes(b'')
    manifest = write_bundle(bundle)
    args = bundle, '--out', tmp_path / 'site', '--onnxruntime-web', scripts
    run_here('web_demo.py', *args)
    copies = {p.name: p.read_bytes() for p in (tmp_path / 'site/bundle').iterdir()}
    assert copies == {path.name: path.read_bytes() for path in bundle.iterdir()}
    resize = dict(step='resize', backend='cv2', interpolation='bilinear')
    bad = [dict(resize, backend='pillow')], [resize, resize], [dict(step='My')]
    for steps in (*bad, [dict(step='center_crop')], [resize]):
        caller = dict(before=[*steps, dict(step='batch')], after=[])
        about = json.dumps(manifest | dict(caller=caller))
        (bundle / 'manifest.json').write_text(about)
        if steps != [resize]:
            with pytest.raises(ValueError, match=f'{steps[0]["step"]}.*once'):
                run_here('web_demo.py', *args)
    run_here('web_demo.py', *args)
    path_of(bundle, 'weights.safetensors').write_bytes(b'others')
    with pytest.raises(ValueError, match=r'weights-\w+.safetensors: sha256='):
        run_here('web_demo.py', *args)
    (bundle / 'manifest.json').write_text(json.dumps(manifest | dict(task='depth')))
    with pytest.raises(ValueError, match='of depth. is invalid'):
        run_here('web_demo.py', *args)


def test_web_page_makes_no_markup_of_names():
    text = ''.join(path.read_text() for path in (TOOLS / 'web').iterdir())
    assert not re.search('innerHTML|outerHTML|insertAdjacentHTML|document.write', text)


@pytest.mark.browser
@pytest.mark.slow
@writes_onnx
@pytest.mark.skipif(CHROMIUM is None, reason='no chromium is installed')
def test_web_demo_page_in_a_browser(run_here, narrow, tmp_path):
    site, file, (image,) = (
        tmp_path / 'site',
        tmp_path / '0.png',
        smooth_images([(50, 90)]),
    )
    cv2.imwrite(str(file), image[..., ::-1])
    model = sn.load(narrow / 'config.py', narrow / 'weights.pth', device='cpu')
    sn.export(model, tmp_path / 'bundle', [0, 2, 4, 1])
    try:
        run_here('web_demo.py', tmp_path / 'bundle', '--out', site, '--images', file)
    except ValueError as error:
        if 'as npm pack failed' not in str(error):
            raise
        pytest.skip(f'npm cannot get onnxruntime-web: {error}')
    manifest = json.loads((site / 'bundle/manifest.json').read_text())
    routes = {stitch['id']: stitch['route'] for stitch in manifest['stitches']}
    pixels = resize_image(image, (64, 64)).transpose(2, 0, 1)[None].astype(np.float32)
    for stitch, found, said in in_browser(site, MOVE):
        path = path_of(site / 'bundle', f'stitch_{stitch}_64x64_fp32.onnx')
        (wanted,) = onnxruntime.InferenceSession(path).run(None, dict(images=pixels))
        assert len({*found}) > 1
        assert_array_equal(np.reshape(found, (64, 64)), wanted[0].argmax(0))
        assert said == f'Route of stitch {stitch}: {routes[stitch]}'
    weights = path_of(site / 'bundle', 'weights.safetensors')
    weights.write_bytes(weights.read_bytes()[:-10])
    assert in_browser(site, FAIL).startswith(f'The file {weights.name} is damaged')
