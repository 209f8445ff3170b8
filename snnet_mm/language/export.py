"""Export one stitch of a language model as a transformers model."""

import os
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutput

from snnet_mm.exports.single import merged_state
from snnet_mm.models import find_stitched_backbone, set_stitch, unwrapped
from snnet_mm.stitching import Stitch
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check, check_writable

from .causal_lm import PADDING
from .hf_decoder_anchor import HFDecoderAnchor

# Errors relative to the largest logit. transformers rounds half precision more often.
TOLERANCE, TOLERANCE_HALF = 1e-5, 2e-2
TOKENS = 'bos_token_id', 'eos_token_id', 'pad_token_id', 'vocab_size'


class StitchConfig(PretrainedConfig):
    """The config of a stitch that runs blocks of several models."""

    model_type = 'snnet_mm_stitch'

    def __init__(
        self, backbone: dict | None = None, vocab_size: int | None = None, **kwargs
    ) -> None:
        super().__init__(**{'use_cache': False} | kwargs)
        self.backbone, self.vocab_size = backbone, vocab_size


class StitchForCausalLM(PreTrainedModel, GenerationMixin):
    """A stitch that transformers can load, save and generate with.

    transformers has no stitching layers, so loading needs this package: import
    :mod:`snnet_mm.language` before ``AutoModelForCausalLM.from_pretrained``. Keys and
    values are not cached.
    """

    config_class = StitchConfig
    base_model_prefix = 'lm'

    def __init__(self, config: StitchConfig) -> None:
        super().__init__(config)
        self.lm = MODELS.build(dict(type='CausalLM', backbone=config.backbone))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **_,
    ) -> CausalLMOutput:
        """Return logits ``(B, L, V)`` of ids ``(B, L)``, and the loss if labelled."""
        if attention_mask is not None:
            input_ids = input_ids.masked_fill(attention_mask == 0, PADDING)
        logits, loss = self.lm(input_ids[:, None]), None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        return CausalLMOutput(loss=loss, logits=logits)


AutoConfig.register(StitchConfig.model_type, StitchConfig)
AutoModelForCausalLM.register(StitchConfig, StitchForCausalLM)


def export_stitch(
    model: nn.Module, stitch_id: int, folder: str | os.PathLike
) -> PreTrainedModel:
    """Write a stitch, with all updates merged, for transformers to load.

    An anchor becomes a plain model of its own family, such as ``LlamaForCausalLM``; any
    other stitch becomes a :class:`StitchForCausalLM`. The written files are loaded
    again, and the loaded model is returned. If its logits differ from the stitch's, no
    file is kept.
    """
    model = unwrapped(model)
    net = find_stitched_backbone(model)
    active, stitch = net.active_stitch, net.space[stitch_id]
    net.set_stitch(stitch_id)
    weights = merged_state(model)
    net.set_stitch(active.id)
    if stitch.kind == ANCHOR_KIND:
        anchor = net.anchors[stitch.end_anchor]
        exported = AutoModelForCausalLM.from_config(
            _config_of(anchor, net), dtype=anchor.dtype
        )
        prefix = f'backbone.anchors.{stitch.end_anchor}.'
        weights = {
            name: weights[
                prefix + name.removeprefix('model.').replace('layers.', 'blocks.')
            ]
            for name in exported.state_dict()
        }
    else:
        config = net.anchors[stitch.end_anchor].config
        tokens = {name: getattr(config, name, None) for name in TOKENS}
        exported = StitchForCausalLM(StitchConfig(_single(stitch, net), **tokens))
        weights = {k: weights[k.removeprefix('lm.')] for k in exported.state_dict()}
    exported.load_state_dict(weights)
    folder = check_writable(folder, 'folder')
    with TemporaryDirectory(prefix='.export-', dir=folder) as written:
        exported.save_pretrained(written)
        loaded = AutoModelForCausalLM.from_pretrained(written).eval()
        set_stitch(model, stitch_id)
        try:
            _compare(model, loaded, stitch_id)
        finally:
            set_stitch(model, active.id)
        for path in Path(written).iterdir():
            os.replace(path, folder / path.name)
    return loaded


def _config_of(anchor: HFDecoderAnchor, net: nn.Module) -> PretrainedConfig:
    config = deepcopy(anchor.config)
    if net.plugins:  # biases of the stitch
        config.attention_bias = True
    return config


def _single(stitch: Stitch, net: nn.Module) -> dict:
    """Return the config of the backbone that runs a stitch."""
    anchors = [None] * len(net.anchors)
    for a in {segment.anchor for segment in stitch.segments}:
        config = _config_of(net.anchors[a], net).to_dict()
        dtype = str(net.anchors[a].dtype).removeprefix('torch.')
        anchors[a] = dict(type='HFDecoderAnchor', model=config, dtype=dtype)
    return dict(
        type='SingleStitch',
        anchors=anchors,
        segments=[tuple(segment) for segment in stitch.segments],
        joints=list(stitch.layers),
        stitching_layers={
            name: net.stitching_layers[name].config() for name in stitch.layers
        },
    )


@torch.no_grad()
def _compare(model: nn.Module, loaded: PreTrainedModel, stitch_id: int) -> None:
    training, device = model.training, next(model.parameters()).device
    vocabulary = model.end_anchor.config.vocab_size
    ids = torch.arange(16)[None] * 7 % vocabulary
    wanted = model.eval()(ids[:, None].to(device)).cpu()
    found = loaded(ids).logits.float()
    model.train(training)
    error = ((found - wanted).abs().max() / wanted.abs().max()).item()
    anchors = find_stitched_backbone(model).anchors
    full = all(anchor.dtype == torch.float32 for anchor in anchors)
    most = TOLERANCE if full else TOLERANCE_HALF
    check(error <= most, f'stitch {stitch_id}', error, f'up to {most} of a logit')
