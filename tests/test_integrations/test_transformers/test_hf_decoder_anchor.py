"""Decoders of transformers as anchors: the same logits, whatever is padded."""

import pytest
import torch
from mmengine.registry import MODELS
from states import run
from tiny_lms import WORDS, anchor_config, some_ids
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from snnet_mm.integrations.transformers.hf_decoder_anchor import FAMILIES


@pytest.fixture
def build_pair(randomise, tmp_path):
    """Builds an anchor with the weights of a model of transformers, and that model."""

    def build(**kwargs):
        anchor = MODELS.build(anchor_config(out='end', **kwargs)).eval()
        theirs = AutoModelForCausalLM.from_config(anchor.config).eval()
        randomise(theirs).tie_weights()
        anchor.load_state_dict(anchor.adapt_weights(theirs.state_dict()))
        return anchor, theirs

    return build


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('tied', [False, True])
@torch.no_grad()
def test_logits_are_those_of_transformers(build_pair, family, tied):
    anchor, theirs = build_pair(family=family, tied=tied, depth=3)
    ids = some_ids(2, 9)
    assert torch.equal(anchor.logits(anchor(ids[:, None])), theirs(ids).logits)


@pytest.mark.parametrize('side', ['left', 'right'])
@torch.no_grad()
def test_padding_changes_no_logits(build_pair, side):
    anchor, theirs = build_pair()
    ids, lengths = some_ids(3, 9), (4, 9, 7)
    real = torch.stack([torch.arange(9) < n for n in lengths])
    real = real.flip(1) if side == 'left' else real
    logits = anchor.logits(anchor(ids.masked_fill(~real, -1)[:, None]))
    assert logits.isfinite().all()
    for row, kept, found in zip(ids, real, logits, strict=True):
        assert_close(found[kept], theirs(row[kept][None]).logits[0])
    positions = (real.cumsum(1) - 1).clamp(min=0)
    masks = dict(attention_mask=real.long(), position_ids=positions)
    assert_close(logits[real], theirs(ids, **masks).logits[real])


@torch.no_grad()
def test_no_token_sees_those_after_it(build_pair):
    anchor, _ = build_pair()
    ids = some_ids(1, 1, 9)
    whole, start = anchor(ids).tokens, anchor(ids[..., :5]).tokens
    assert_close(whole[:, :5], start)


@torch.no_grad()
def test_weights_of_folders_and_files(build_pair, tmp_path):
    _, theirs = build_pair(tied=True)
    theirs.save_pretrained(tmp_path)
    files = dict(type='Pretrained', checkpoint=str(tmp_path / 'model.safetensors'))
    ids = some_ids(2, 9)
    for more in (dict(pretrained=str(tmp_path)), dict(init_cfg=files)):
        config = dict(anchor_config(out='end', **more), model=str(tmp_path))
        anchor = MODELS.build(config).eval()
        anchor.init_weights()
        assert torch.equal(anchor.logits(anchor(ids[:, None])), theirs(ids).logits)
        assert anchor.lm_head.weight is anchor.embed_tokens.weight


@torch.no_grad()
def test_low_precision_is_for_the_frozen_weights(build_pair):
    anchor = MODELS.build(
        anchor_config(out='end', dtype='bfloat16', lora=dict(rank=2), tied=True)
    )
    trained = {n for n, p in anchor.named_parameters() if p.requires_grad}
    assert {n.rsplit('_', 1)[-1] for n in trained} == {'A', 'B'}
    assert len(trained) == 2 * 4 * 2
    for name, parameter in anchor.named_parameters():
        of = torch.float32 if name in trained else torch.bfloat16
        assert parameter.dtype is of
    exact = MODELS.build(anchor_config(out='end', lora=dict(rank=2), tied=True))
    exact.load_state_dict(anchor.state_dict())
    state, wanted = (net(some_ids(2, 1, 9)) for net in (anchor, exact))
    assert state.tokens.dtype is torch.float32
    assert_close(state.tokens, wanted.tokens, rtol=0.05, atol=0.05)


@torch.no_grad()
def test_only_kept_blocks_are_built(build_pair):
    anchor, _ = build_pair(depth=3)
    names = {*anchor.state_dict()}
    for kept, embedding in (([0, 1], True), ([1, 2], False)):
        part = MODELS.build(
            anchor_config(depth=3, kept_blocks=kept, embedding=embedding)
        )
        own = part.state_dict()
        wanted = {n for n in names if any(f'blocks.{i}.' in n for i in kept)}
        ends = ('norm.', 'lm_head.') if 2 in kept else ()
        starts = ('embed_tokens.',) if embedding else ()
        wanted |= {n for n in names if n.startswith((*ends, *starts))}
        assert {*own} == wanted
        part.load_state_dict({n: anchor.state_dict()[n] for n in own})
        state = run(anchor, anchor.embed(some_ids(1, 1, 5)), 0, kept[0])
        found, expected = (
            run(net, state, kept[0], kept[1] + 1) for net in (part, anchor)
        )
        assert torch.equal(found.tokens, expected.tokens)


def test_levels_of_layer_wise_decay():
    anchor = MODELS.build(anchor_config(depth=3, frozen_stages=1))
    levels = {
        name.split('.layers')[0]: anchor.layer_depth(name)[0]
        for name, _ in anchor.named_parameters()
    }
    assert levels.pop('embed_tokens.weight') == 0
    assert levels.pop('norm.weight') == levels.pop('lm_head.weight') == 4
    assert {v for k, v in levels.items() if k.startswith('blocks.1.')} == {2}
    frozen = {n for n, p in anchor.named_parameters() if not p.requires_grad}
    assert {n.split('.mlp')[0].split('.')[0] for n in frozen} == {
        'embed_tokens',
        'blocks',
    }


@pytest.mark.parametrize(
    'change, said',
    [
        (dict(settings=dict(num_attention_heads=3)), 'not a multiple|head_dim'),
        (dict(settings=dict(head_dim=5)), 'an even width of heads'),
        (dict(settings=dict(num_key_value_heads=3)), 'divide their number'),
        (dict(family='mistral', settings=dict(sliding_window=8)), 'sliding_window=8'),
        (dict(family='gpt2'), 'this is a gpt2'),
        (dict(family='lama'), "or a dict of a config: Unrecognized model.*'lama'|lama"),
        (dict(family='qwen2', qkv_bias=True), 'qkv_bias=True'),
        (dict(dtype='float8'), "dtype='float8'; allowed: 'float32', 'bfloat16'"),
        (dict(lora=dict(rank=2, targets=['qkv'])), 'rank, alpha and targets'),
    ],
)
def test_wrong_models_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        MODELS.build(anchor_config(**change))


def test_texts_and_files_that_do_not_fit_are_refused(build_pair, tmp_path):
    anchor, theirs = build_pair(width=24)
    with pytest.raises(ValueError, match='length=33; allowed: up to 32, the positions'):
        anchor(some_ids(1, 1, 33))
    other = GPT2LMHeadModel(GPT2Config(WORDS, 32, 16, 2, 2))
    for model, folder in ((theirs, 'wide'), (other, 'gpt2')):
        model.save_pretrained(tmp_path / folder)
    for folder, said in (
        ('wide', r'has shape \(50, 24\), wanted is \(50, 16\)'),
        ('gpt2', 'and this is a gpt2'),
        ('none', 'anchors.pretrained'),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        wrong = anchor_config(pretrained=str(tmp_path / folder))
        with pytest.raises(ValueError, match=said):
            MODELS.build(wrong).init_weights()
