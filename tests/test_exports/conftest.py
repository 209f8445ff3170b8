import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from running_here import run_here  # noqa: F401
from torch.testing import assert_close
from toy import disturb, narrow_toy

from snnet_mm.exports import load_export
from snnet_mm.models import set_stitch

toy_cfg = pytest.fixture(lambda: narrow_toy, scope='session')


@pytest.fixture(scope='session')
def build():
    """Builds the model of a config; all weights and statistics affect its output.

    They are the same on every call.
    """

    def build(cfg):
        init_default_scope(cfg.default_scope)
        torch.manual_seed(0)
        return disturb(MODELS.build(cfg.model))

    return build


@pytest.fixture
def logits():
    """Returns the logits of a segmentor for normalised images."""

    @torch.no_grad()
    def logits(model, images):
        return model.encode_decode(images, [dict(img_shape=images.shape[2:])])

    return logits


@pytest.fixture
def compare_graphs():
    """Exports a stitch to graphs that normalise images, and checks their output."""

    @torch.no_grad()
    def compare(exporter, stitch_id, formats, predict):
        model = exporter.model
        manifest = exporter.export_stitch(stitch_id, formats)
        set_stitch(model, stitch_id)
        for number in (1, 3):
            images = 255 * torch.rand(number, 3, *exporter.size)
            mean, std = model.data_preprocessor.mean, model.data_preprocessor.std
            wanted = predict(model, (images - mean) / std)
            for file in manifest['stitches'][0]['files']:
                got = load_export(exporter.out_dir / file['name'])(images)
                assert_close(got, wanted, rtol=1e-4, atol=1e-4)
        return manifest

    return compare
