"""Stitches as models of transformers: the logits of what is loaded again."""

import pytest
import torch
import torch.nn.functional as F
from tiny_lms import BIASES, some_ids
from torch.testing import assert_close

from snnet_mm.models import set_stitch

pytest.importorskip('transformers')

from transformers import AutoModelForCausalLM, LlamaForCausalLM

from snnet_mm.language import StitchForCausalLM, export, export_stitch


@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('plugins', [None, BIASES])
@torch.no_grad()
def test_every_stitch_is_loaded_in_one_call(build_lm, tmp_path, tied, plugins):
    model = build_lm(dict(tied=tied, lora=dict(rank=2)), plugins=plugins)
    ids, mask = some_ids(2, 9), torch.ones(2, 9, dtype=torch.long)
    mask[0, 6:] = 0
    for stitch in model.backbone.space:
        export_stitch(model, stitch.id, tmp_path)
        assert model.backbone.active_stitch.id == 1
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        kind = LlamaForCausalLM if stitch.kind == 'anchor' else StitchForCausalLM
        assert type(loaded) is kind
        set_stitch(model, stitch.id)
        wanted = model(ids[:, None])
        close = dict(rtol=0, atol=1e-5 * wanted.abs().max().item())
        assert_close(loaded(ids).logits, wanted, **close)
        padded = loaded(ids, attention_mask=mask).logits[0, :6]
        assert_close(padded, wanted[0, :6], **close)
        greedy = dict(max_new_tokens=4, do_sample=False, eos_token_id=None)
        said, prompt = (
            loaded.generate(ids[:1, :4], **greedy)[0, 4:].tolist(),
            ids[0, :4],
        )
        assert said == model.generate(prompt.tolist(), 4)
        until = said[: said.index(said[1]) + 1]
        assert model.generate(prompt.tolist(), 4, eos=said[1]) == until
        set_stitch(model, 1)


def test_what_generation_and_trainers_need(build_lm, tmp_path):
    model = build_lm()
    loaded = export_stitch(model, 2, tmp_path)
    wanted = model.backbone.anchors[-1].config
    for name in ('bos_token_id', 'eos_token_id', 'pad_token_id', 'vocab_size'):
        assert getattr(loaded.config, name) == getattr(wanted, name)
    ids = some_ids(2, 9)
    labels = ids.masked_fill(torch.arange(9) < 3, -100)
    found = loaded(ids, labels=labels)
    logits = found.logits[:, 2:-1].flatten(0, 1)
    assert_close(found.loss, F.cross_entropy(logits, ids[:, 3:].flatten()))


@pytest.mark.parametrize('stitch', [0, 2])
def test_anchors_in_half_precision(build_lm, tmp_path, stitch):
    """Their own models round after every block, or compute in full precision."""
    model, ids = build_lm(dict(dtype='bfloat16')), some_ids(2, 9)
    found = export_stitch(model, stitch, tmp_path)(ids).logits
    set_stitch(model, stitch)
    wanted = model(ids[:, None])
    assert (found - wanted).abs().max() / wanted.abs().max() < 2e-2


def test_other_logits_are_refused(build_lm, tmp_path, monkeypatch):
    monkeypatch.setattr(export, 'TOLERANCE', -1.0)
    with pytest.raises(ValueError, match='allowed: up to -1.0 of a logit'):
        export_stitch(build_lm(), 2, tmp_path)
    assert not [*tmp_path.iterdir()]
