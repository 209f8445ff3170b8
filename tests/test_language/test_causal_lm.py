"""Stitched language models: routes, weights, losses, costs and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from small import WORDS, small, some_ids
from tables import counts
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.costs import cost_table, measure_latency
from snnet_mm.costs.counting import whole_model_cost
from snnet_mm.models import fit_stitching_layers, set_stitch

pytest.importorskip('transformers')

from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel


def of_transformers(anchor, **kwargs):
    """The model of transformers with the weights of an anchor."""
    model = AutoModelForCausalLM.from_config(anchor.config, **kwargs).eval()
    weights = {k.replace('blocks', 'layers'): v for k, v in anchor.state_dict().items()}
    head = weights.pop('lm_head.weight')
    model.model.load_state_dict(weights)
    model.lm_head.load_state_dict(dict(weight=head))
    return model


@pytest.mark.parametrize(('head_dim', 'tied'), [(4, False), (2, True)])
@torch.no_grad()
def test_causal_lm_routes_are_blocks_by_hand(build_lm, head_dim, tied):
    """Heads may be of another width in each anchor, which rotates its own."""
    slow = dict(settings=dict(head_dim=head_dim))
    model = build_lm(dict(tied=tied), slow)
    net, ids = model.backbone, some_ids(3, 1, 9)
    alone = [of_transformers(anchor) for anchor in net.anchors]
    for stitch_id, theirs in enumerate(alone):
        set_stitch(model, stitch_id)
        assert torch.equal(model(ids), theirs(ids[:, 0]).logits)
    ids[0, 0, 5:] = ids[2, 0, :2] = -1
    real = ids[:, 0] >= 0
    positions = (real.cumsum(1) - 1).clamp(min=0)
    seen = torch.ones(9, 9).tril().bool() & real[:, None] | torch.eye(9).bool()
    for stitch in net.space:
        set_stitch(model, stitch.id)
        layers, x = iter(stitch.layers), None
        for a, begin, end in stitch.segments:
            theirs = alone[a].model
            if x is None:
                x = theirs.embed_tokens(ids[:, 0].clamp(min=0))
            else:
                x = net.stitching_layers[next(layers)](x)
            turned = theirs.rotary_emb(x, positions)
            for block in theirs.layers[begin:end]:
                x = block(x, attention_mask=seen[:, None], position_embeddings=turned)
        assert_close(model(ids)[real], alone[a].lm_head(theirs.norm(x))[real])
        if stitch.kind == 'anchor':  # padding changes no logits
            for row, kept, found in zip(ids[:, 0], real, model(ids), strict=True):
                assert_close(found[kept], alone[a](row[kept][None]).logits[0])


@torch.no_grad()
def test_hf_decoder_anchor_weights_of_folders_and_files(randomise, tmp_path):
    anchor = MODELS.build(small('lm', tied=True))
    theirs = randomise(AutoModelForCausalLM.from_config(anchor.config)).eval()
    theirs.save_pretrained(tmp_path)
    file = dict(type='Pretrained', checkpoint=str(tmp_path / 'model.safetensors'))
    ids = some_ids(2, 9)
    for more in (dict(pretrained=str(tmp_path)), dict(init_cfg=file)):
        config = dict(small('lm', out='end', **more), model=str(tmp_path))
        anchor = MODELS.build(config).eval()
        anchor.init_weights()
        assert torch.equal(anchor.logits(anchor(ids[:, None])), theirs(ids).logits)
        assert anchor.lm_head.weight is anchor.embed_tokens.weight


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(width=24), r'\(50, 24\), .*\(50, 16\)'),
        (dict(depth=3), 'hidden_layers=3 is invalid'),
        ('gpt2', 'this is a gpt2'),
        ('nothing', 'folder or name .*anchors.pretrained'),
    ],
)
def test_hf_decoder_anchor_misfitting_weights_raise(settings, words, tmp_path):
    if settings == 'gpt2':
        GPT2LMHeadModel(GPT2Config(WORDS, 32, 16, 2, 2)).save_pretrained(tmp_path)
    elif settings != 'nothing':
        config = MODELS.build(small('lm', **settings)).config
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    wrong = MODELS.build(small('lm', pretrained=str(tmp_path)))
    with pytest.raises(ValueError, match=words):
        wrong.init_weights()


def test_hf_decoder_anchor_misfitting_texts_raise():
    anchor = MODELS.build(small('lm'))
    for ids, key in ((some_ids(1, 1, 33), 'length'), (some_ids(1, 1, 9) + 45, 'vocab')):
        with pytest.raises(ValueError, match=key):
            anchor(ids)


def test_causal_lm_targets_are_next_tokens(build_lm):
    """Prompts and padding are no targets."""
    model, texts = build_lm(length=7), [some_ids(1, n) for n in (9, 4)]
    labels = [text.clone() for text in texts]
    labels[0][0, :3] = -100
    samples = [BaseDataElement(labels=label) for label in labels]
    data = model.data_preprocessor(dict(inputs=texts, data_samples=samples))
    assert data['inputs'].tolist()[1][0] == [*texts[1][0].tolist(), -1, -1, -1]
    loss, nll = model(**data, mode='loss')['loss'], 0
    theirs = of_transformers(model.backbone.anchors[1])
    predicted = model(**data, mode='predict')
    for text, label, sample in zip(texts, labels, predicted, strict=True):
        wanted = theirs(text[:, :7], labels=label[:, :7]).loss * sample.num_targets
        assert sample.nll == pytest.approx(wanted.item(), rel=1e-4)
        nll += wanted
    assert [sample.num_targets for sample in predicted] == [4, 3]
    assert_close(loss, nll / 7)
    nothing = [BaseDataElement(labels=torch.full((1, 7), -100))] * 2
    assert model(data['inputs'], nothing, mode='loss')['loss'] == 0


def test_causal_lm_costs_equal_those_of_torch(build_lm):
    """LoRA and biases are merged; eager attention is counted on a CPU, too."""
    biases = dict(stitch_biases=dict(type='StitchBiases'))
    model = build_lm(dict(tied=True, lora=dict(rank=2)), plugins=biases)
    table = cost_table(model)
    assert table.input_size == (1, 16)
    for stitch_id, anchor in enumerate(model.backbone.anchors):
        config = small('lm', anchor.depth, anchor.block_dims[0], tied=True)
        lone = MODELS.build(dict(type='CausalLM', backbone=config))
        theirs = of_transformers(lone.backbone, attn_implementation='eager')
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            theirs(some_ids(1, 16))
        flops = counter.get_total_flops() // 2
        assert counts(table[stitch_id]) == (flops, theirs.num_parameters())
        assert whole_model_cost(lone, (1, 16))[0][:2] == counts(table[stitch_id])
    fast, slow = model.backbone.anchors
    parts = fast.embed_tokens, fast.blocks[0], *slow.blocks[2:], slow.norm, slow.lm_head
    weights = [
        p for part in parts for n, p in part.named_parameters() if 'lora' not in n
    ]
    assert table[2].params == sum(p.numel() for p in weights) + 16 * 24 + 24
    assert min(measure_latency(model, rounds=1).by_stitch.values()) > 0


def test_causal_lm_fits_layers_without_padding(build_lm):
    model, ids = build_lm(layer=dict(type='StitchingLayer')), some_ids(40, 1, 9)
    maps = []
    for padding in (0, 5):
        fit_stitching_layers(model.backbone, [F.pad(ids, (0, padding), value=-1)])
        layers = model.backbone.stitching_layers.state_dict()
        maps.append({name: value.clone() for name, value in layers.items()})
    assert_close(*maps, rtol=1e-3, atol=1e-3)
