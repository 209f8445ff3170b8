"""Stitched language models; skipped where transformers is not installed."""

from importlib.util import find_spec

import pytest
from mmengine.registry import MODELS
from small import small

LORA = dict(type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False)

if find_spec('transformers'):
    import snnet_mm.language  # noqa: F401


@pytest.fixture
def build_lm(randomise):
    """Builds a language model of anchors with depths 2 and 4, widths 16 and 24."""

    def build(anchor=None, slow=None, length=16, layer=LORA, **kwargs):
        sizes = dict(depth=2, width=16), dict(depth=4, width=24) | (slow or {})
        anchors = [small('lm', **size | (anchor or {})) for size in sizes]
        parts = dict(anchors=anchors, stitching_layer=layer, **kwargs)
        text = dict(type='TextPreprocessor', length=length)
        config = dict(type='CausalLM', backbone=dict(type='SNNetv2', **parts))
        return randomise(MODELS.build(dict(config, data_preprocessor=text))).eval()

    return build
