"""Decoders of transformers as anchors: the same logits, whatever is padded."""

import pytest
import torch
from mmengine.registry import MODELS
from tiny_lms import WORDS, anchor_config, some_ids
from torch.testing import assert_close

pytest.importorskip('transformers')

from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel


@pytest.fixture
def build_pair(randomise):
    """Builds an anchor with the weights of a model of transformers, and that model."""

    def build(**kwargs):
        anchor = MODELS.build(anchor_config(out='end', **kwargs)).eval()
        theirs = AutoModelForCausalLM.from_config(anchor.config).eval()
        randomise(theirs).tie_weights()
        anchor.load_state_dict(anchor.adapt_weights(theirs.state_dict()))
        return anchor, theirs

    return build


@pytest.mark.parametrize('tied', [False, True])
@torch.no_grad()
def test_logits_are_those_of_transformers(build_pair, tied):
    anchor, theirs = build_pair(tied=tied, depth=3)
    ids = some_ids(2, 9)
    assert torch.equal(anchor.logits(anchor(ids[:, None])), theirs(ids).logits)


@pytest.mark.parametrize('side', ['left', 'right'])
@torch.no_grad()
def test_padding_changes_no_logits(build_pair, side):
    anchor, theirs = build_pair()
    ids = some_ids(3, 9)
    real = torch.arange(9) < torch.tensor([[4], [9], [7]])
    real = real.flip(1) if side == 'left' else real
    logits = anchor.logits(anchor(ids.masked_fill(~real, -1)[:, None]))
    assert logits.isfinite().all()
    for row, kept, found in zip(ids, real, logits, strict=True):
        assert_close(found[kept], theirs(row[kept][None]).logits[0])


@torch.no_grad()
def test_weights_of_folders_and_files(build_pair, tmp_path):
    _, theirs = build_pair(tied=True)
    theirs.save_pretrained(tmp_path)
    file = dict(type='Pretrained', checkpoint=str(tmp_path / 'model.safetensors'))
    ids = some_ids(2, 9)
    for more in (dict(pretrained=str(tmp_path)), dict(init_cfg=file)):
        config = dict(anchor_config(out='end', **more), model=str(tmp_path))
        anchor = MODELS.build(config).eval()
        anchor.init_weights()
        assert torch.equal(anchor.logits(anchor(ids[:, None])), theirs(ids).logits)
        assert anchor.lm_head.weight is anchor.embed_tokens.weight


def test_texts_and_files_that_do_not_fit_are_refused(build_pair, tmp_path):
    anchor, theirs = build_pair(width=24)
    with pytest.raises(ValueError, match='length=33 is invalid'):
        anchor(some_ids(1, 1, 33))
    with pytest.raises(ValueError, match='tokenizer=50 is invalid'):
        anchor(some_ids(1, 1, 9) + 45)
    theirs.save_pretrained(tmp_path / 'wide')
    GPT2LMHeadModel(GPT2Config(WORDS, 32, 16, 2, 2)).save_pretrained(tmp_path / 'gpt2')
    (tmp_path / 'none').mkdir()
    wide = r'has shape \(50, 24\), expected \(50, 16\)'
    for folder, said in dict(wide=wide, gpt2='this is a gpt2', none='a fold').items():
        wrong = MODELS.build(anchor_config(pretrained=str(tmp_path / folder)))
        with pytest.raises(ValueError, match=f'pretrained=.*{said}'):
            wrong.init_weights()
    _, theirs = build_pair(depth=3)
    theirs.save_pretrained(tmp_path / 'deep')
    deep = MODELS.build(anchor_config(depth=2, pretrained=str(tmp_path / 'deep')))
    with pytest.raises(ValueError, match='hidden_layers=3 is invalid'):
        deep.init_weights()
