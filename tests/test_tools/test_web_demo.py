import json
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from chromium import CHROMIUM, open_page, served
from manifests import path_of, write_bundle
from mmengine.registry import MODELS, init_default_scope
from numpy.testing import assert_array_equal
from old_torch import writes_onnx
from toy import SHORT, balance, disturb, narrow_toy, smooth_images

from snnet_mm.exports import StitchExporter
from snnet_mm.runtime.images import resize_image

onnxruntime = pytest.importorskip('onnxruntime')

ROOT = Path(__file__).parents[2]
IDS = (0, 2, 4, 1)


@pytest.fixture(scope='module')
def bundle(tmp_path_factory):
    cfg = narrow_toy(sizes=SHORT)
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = balance(disturb(MODELS.build(cfg.model)))
    out = tmp_path_factory.mktemp('bundle')
    StitchExporter(cfg, model, out).export_bundle(IDS)
    return out


@pytest.fixture
def tool(monkeypatch):
    """The tool as a module, run in this process with arguments by ``tool.run``."""
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import web_demo

    def run(*args):
        monkeypatch.setattr(sys, 'argv', ['web_demo.py', *map(str, args)])
        web_demo.main()

    web_demo.run = run
    return web_demo


@pytest.fixture
def images(tmp_path):
    """Images of smooth noise, RGB, by the path of their file."""
    found = {}
    for i, image in enumerate(smooth_images()):
        found[tmp_path / f'{i}.png'] = image
        cv2.imwrite(str(tmp_path / f'{i}.png'), image[..., ::-1])
    return found


def masks(bundle, stitch, image):
    """What onnxruntime gives here."""
    path = path_of(bundle, f'stitch_{stitch}_64x64_fp32.onnx')
    pixels = resize_image(image, (64, 64)).transpose(2, 0, 1)[None]
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {'images': pixels.astype(np.float32)})[0][0].argmax(0)


def test_web_demo_copies_files_of_the_bundle(tool, tmp_path):
    bundle, scripts = tmp_path / 'bundle', tmp_path / 'scripts'
    for folder in (bundle, scripts):
        folder.mkdir()
    for name in tool.SCRIPTS:
        (scripts / name).write_bytes(b'')
    manifest = write_bundle(bundle)
    args = bundle, '--out', tmp_path / 'site', '--onnxruntime-web', scripts
    tool.run(*args)
    copies = {p.name: p.read_bytes() for p in (tmp_path / 'site/bundle').iterdir()}
    assert copies == {path.name: path.read_bytes() for path in bundle.iterdir()}
    path_of(bundle, 'weights.safetensors').write_bytes(b'others')
    with pytest.raises(ValueError, match=r'weights-\w+.safetensors: sha256='):
        tool.run(*args)
    (bundle / 'manifest.json').write_text(json.dumps(manifest | dict(task='depth')))
    with pytest.raises(ValueError, match='of depth. is invalid'):
        tool.run(*args)


def test_web_page_makes_no_markup_of_names():
    for path in (ROOT / 'tools/web').iterdir():
        text = path.read_text()
        for word in ('innerHTML', 'outerHTML', 'insertAdjacentHTML', 'document.write'):
            assert word not in text, (path.name, word)


@pytest.mark.browser
@pytest.mark.slow
@writes_onnx
@pytest.mark.skipif(CHROMIUM is None, reason='no chromium is installed')
def test_web_demo_page_in_a_browser(tool, bundle, images, tmp_path):
    site, view = tmp_path / 'site', 'demo.views[0]'
    try:
        tool.run(bundle, '--out', site, '--images', *images)
    except ValueError as error:
        if 'as npm pack failed' not in str(error):
            raise
        pytest.skip(f'npm cannot get onnxruntime-web: {error}')
    manifest = json.loads((bundle / 'manifest.json').read_text())
    routes = {stitch['id']: stitch['route'] for stitch in manifest['stitches']}
    with served(site) as url, open_page(url) as page:
        page.wait('window.demo?.views[0].found')
        file, image = next(iter(images.items()))
        page.run(f'demo.loadImage("images/{file.name}")')
        for place, stitch in ((0, 0), (1, 2), (3, 1)):
            page.run(f"""{view}.slider.value = {place};
                {view}.slider.dispatchEvent(new Event('input'))""")
            page.wait(
                f'{view}.found?.stitch === {stitch} && '
                f'{view}.found.url === "images/{file.name}"'
            )
            found = np.reshape(page.run(f'[...{view}.found.map]'), (64, 64))
            assert len(np.unique(found)) > 1
            assert_array_equal(found, masks(bundle, stitch, image))
            said = page.run(f'{view}.svg.getAttribute("aria-label")')
            assert said == f'Route of stitch {stitch}: {routes[stitch]}'
        weights = path_of(site / 'bundle', 'weights.safetensors')
        weights.write_bytes(weights.read_bytes()[:-10])
        page.call('Page.navigate', url=url)
        message = f'The file {weights.name} is damaged'
        page.wait(f'document.body?.innerText.includes({message!r})')
