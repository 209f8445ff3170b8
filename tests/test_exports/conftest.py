import hashlib
from functools import partial

import pytest
import torch
from running_here import run_here  # noqa: F401
from small import SHORT, balance, build_disturbed, small

from snnet_mm.exports import onnx_files
from snnet_mm.models import batch_norms, set_statistics

toy_cfg = pytest.fixture(lambda: partial(small, 'narrow'), scope='session')


@pytest.fixture(scope='session')
def build():
    return build_disturbed


@pytest.fixture(scope='session', autouse=True)
def converted_once():
    """Convert equal models to ONNX once: each conversion takes seconds."""
    convert, known = onnx_files._convert, {}

    def convert_once(build):
        weights = [v.numpy().tobytes() for v in build.model.state_dict().values()]
        content = hashlib.sha256(b''.join(weights)).digest()
        key = str(build.cfg.model), build.images.shape, content
        if key not in known:
            known[key] = convert(build)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_files, '_convert', convert_once)
        yield


@pytest.fixture(scope='session')
def short_model(toy_cfg, build):
    """Builds a toy config, and its model, whose stitch 0 has statistics of its own.

    On noise, each class is as likely as another.
    """

    @torch.no_grad()
    def short_model(cfg=None):
        cfg = cfg or toy_cfg(sizes=SHORT)
        model = balance(build(cfg))
        mixed = {
            name: torch.stack([norm.running_mean, norm.running_var])
            for name, norm in batch_norms(model).items()
        }
        own = {name: 1.2 * value for name, value in mixed.items()}
        set_statistics(model, {0: own, 1: mixed, 2: mixed})
        return cfg, model

    return short_model


@pytest.fixture
def logits():
    """Returns the logits of a segmentor for normalised images."""

    @torch.no_grad()
    def logits(model, images):
        return model.encode_decode(images, [dict(img_shape=images.shape[2:])])

    return logits
