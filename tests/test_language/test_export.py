"""Stitches as models of transformers: the logits of what is loaded again."""

import pytest
import torch
from tiny_lms import BIASES, some_ids
from torch.testing import assert_close

from snnet_mm.models import set_stitch

pytest.importorskip('transformers')

from transformers import AutoModelForCausalLM, LlamaForCausalLM

from snnet_mm.language import StitchForCausalLM, export_stitch


@pytest.mark.parametrize(('tied', 'plugins'), [(True, None), (False, BIASES)])
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
        beams = dict(do_sample=True, top_p=0.75, num_beams=4)  # as in ESTA
        found = loaded.generate(ids[:1, :4], **greedy | beams)
        assert found.shape == (1, 8)
        until = said[: said.index(said[1]) + 1]
        assert model.generate(prompt.tolist(), 4, eos=said[1]) == until
        set_stitch(model, 1)


@pytest.mark.parametrize('stitch', [0, 2])
def test_anchors_in_half_precision(build_lm, tmp_path, stitch):
    """Their own models round after every block, or compute in full precision."""
    model, ids = build_lm(dict(dtype='bfloat16')), some_ids(2, 9)
    found = export_stitch(model, stitch, tmp_path)(ids).logits
    set_stitch(model, stitch)
    wanted = model(ids[:, None])
    assert (found - wanted).abs().max() / wanted.abs().max() < 2e-2
