"""Small language models of transformers; skipped where that is not installed."""

import importlib.util

import pytest
from mmengine.registry import MODELS
from tiny_lms import LORA, anchor_config

if importlib.util.find_spec('transformers') is None:
    collect_ignore_glob = ['test_*.py']
else:
    import snnet_mm.integrations.transformers  # noqa: F401


@pytest.fixture
def build_lm(randomise):
    """Builds a stitched language model of depths 2 and 4, widths 16 and 24."""

    def build(anchor=None, plugins=None, layer=LORA, kind='SNNetv2', **kwargs):
        anchor = anchor or {}
        sizes = dict(depth=2, width=16), dict(depth=4, width=24)
        backbone = dict(
            type=kind,
            anchors=[anchor_config(**(size | anchor)) for size in sizes],
            stitching_layer=layer,
            plugins=plugins,
        )
        text = dict(type='TextPreprocessor', length=16)
        config = dict(type='CausalLM', backbone=backbone, data_preprocessor=text)
        return randomise(MODELS.build(config | kwargs)).eval()

    return build
