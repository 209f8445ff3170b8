import json

import numpy as np
import pytest
import torch
from manifests import MANIFEST
from running_here import run_here  # noqa: F401
from small import SHORT, balance, disturb, small

from snnet_mm.costs import cost_table
from snnet_mm.models.init_model import init_model
from snnet_mm.runtime.bundle import describe_file


@pytest.fixture(scope='session')
def narrow(tmp_path_factory):
    """Folder with config, weights and results of a segmentor of stitches 0, 1, 2, 4."""
    folder, cfg = tmp_path_factory.mktemp('narrow'), small('narrow', sizes=SHORT)
    cfg.dump(folder / 'config.py')
    model = init_model(cfg, None, device='cpu')
    torch.manual_seed(0)
    balance(disturb(model))
    torch.save(dict(state_dict=model.state_dict()), folder / 'weights.pth')
    scores = {i: dict(mIoU=float(i * 7 % 15)) for i in model.backbone.space.ids}
    cost_table(model).with_metrics(scores).save(folder / 'stitches.json')
    return folder


@pytest.fixture(scope='session')
def bundle(tmp_path_factory):
    """A bundle whose stitches 0 and 1 find bright red and bright green pixels.

    Each is a convolution of one pixel; real networks are exported in test_exports.
    """
    ir = pytest.importorskip('onnx_ir')
    pytest.importorskip('onnxruntime')
    from onnx_text import model_of

    folder, size = tmp_path_factory.mktemp('bundle'), [64, 64]
    (entry, *_), stitches = MANIFEST['stitches'], []
    text = """(float[batch,3,64,64] images) => (float[batch,2,64,64] predictions) {
        predictions = Conv(images, w, b)
    }"""
    for i in (0, 1):
        weights, path = np.zeros((2, 3, 1, 1), 'f4'), folder / f'stitch_{i}.onnx'
        weights[1, i] = 1
        ir.save(model_of(text, dict(w=weights, b=np.float32([127, 0]))), path)
        own = dict(weights=None, verified=None)
        file = entry['files'][0] | describe_file(path) | own
        about = dict(id=i, flops=(1 + i) * 10**9, metrics=dict(mIoU=40 + i))
        stitches.append(entry | about | dict(files=[file]))
    resize = dict(step='resize', size=size, keep_ratio=False)
    resize |= dict(backend='cv2', interpolation='bilinear')
    caller = dict(
        before=[resize, dict(step='channels', order='RGB'), dict(step='batch')],
        after=[dict(step='resize', align_corners=False), dict(step='argmax', axis=1)],
    )
    manifest = MANIFEST | dict(weights=None, stitches=stitches, caller=caller)
    manifest['input'] = MANIFEST['input'] | dict(shape=['batch', 3, *size])
    (folder / 'manifest.json').write_text(json.dumps(manifest))
    return folder
