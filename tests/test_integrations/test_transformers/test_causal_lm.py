"""Stitched language models: routes, losses, costs and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from states import states_on_route
from tiny_lms import BIASES, LORA, anchor_config, some_ids
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from snnet_mm.evaluation import cost_table, measure_latency
from snnet_mm.evaluation.costs import whole_model_cost
from snnet_mm.models import fit_stitching_layers, set_stitch
from snnet_mm.stitching import visiting_order

OTHER = [anchor_config(), anchor_config(4, 24, vocab_size=60)]


def of_transformers(anchor, **kwargs):
    """The model of transformers with the weights of an anchor."""
    model = AutoModelForCausalLM.from_config(anchor.config, **kwargs).eval()
    names = {f'model.{n}'.replace('blocks', 'layers'): n for n in anchor.state_dict()}
    weights = anchor.state_dict()
    weights = {
        n.replace('model.lm_head', 'lm_head'): weights[o] for n, o in names.items()
    }
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize('tied', [False, True])
@torch.no_grad()
def test_anchors_are_those_of_transformers(build_lm, tied):
    model, ids = build_lm(dict(tied=tied)), some_ids(3, 9)
    for stitch_id, anchor in zip((0, 1), model.backbone.anchors, strict=True):
        set_stitch(model, stitch_id)
        assert torch.equal(model(ids[:, None]), of_transformers(anchor)(ids).logits)


@pytest.mark.parametrize('head_dim', [4, 2])
@torch.no_grad()
def test_any_route_is_its_blocks_by_hand(build_lm, head_dim):
    """Heads may be of another width in each anchor, which rotates its own."""
    model = build_lm(plugins=None)
    slow = anchor_config(4, 24, settings=dict(head_dim=head_dim))
    if head_dim == 2:
        backbone = dict(
            type='SNNetv2', anchors=[anchor_config(), slow], stitching_layer=LORA
        )
        model = MODELS.build(dict(type='CausalLM', backbone=backbone)).eval()
    net, ids = model.backbone, some_ids(3, 1, 9)
    ids[0, 0, 5:] = ids[2, 0, :2] = -1
    alone = [of_transformers(anchor) for anchor in net.anchors]
    real = ids[:, 0] >= 0
    positions = (real.cumsum(1) - 1).clamp(min=0)
    allowed = torch.ones(9, 9).tril().bool() & real[:, None] | torch.eye(9).bool()
    masks = dict(attention_mask=allowed[:, None], position_ids=positions)
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
                x = block(x, position_embeddings=turned, **masks)
        logits = alone[a].lm_head(theirs.norm(x))
        assert_close(model(ids)[real], logits[real])
        last = [*states_on_route(net, stitch, ids).values()][-1]
        assert torch.equal(net(ids).tokens, last.tokens)


@pytest.mark.parametrize('plugins', [None, BIASES])
@torch.no_grad()
def test_padding_and_shared_prefixes_change_nothing(build_lm, plugins):
    model, ids = build_lm(plugins=plugins), some_ids(2, 1, 9)
    padded = F.pad(ids, (0, 3), value=-1)
    alone, order = {}, visiting_order(model.backbone.space)
    for stitch in model.backbone.space:
        set_stitch(model, stitch.id)
        alone[stitch.id] = model(ids)
        assert_close(model(padded)[:, :9], alone[stitch.id], rtol=1e-4, atol=1e-4)
    ran = []
    for anchor in model.backbone.anchors:
        for block in anchor.blocks:
            block.register_forward_hook(lambda *args: ran.append(1))
    with model.backbone.sharing_prefixes():
        for stitch in order:
            set_stitch(model, stitch.id)
            assert torch.equal(model(ids), alone[stitch.id])
    of_all = sum(s.end - s.begin for x in model.backbone.space for s in x.segments)
    assert (len(ran) == of_all) == bool(plugins)


def sample(labels):
    return BaseDataElement(labels=torch.tensor([labels]))


def test_targets_are_the_next_tokens_but_of_prompts_and_padding(build_lm):
    model = build_lm()
    texts = [some_ids(1, n) for n in (7, 4)]
    labels = [t.clone() for t in texts]
    labels[0][0, :3] = -100
    samples = [BaseDataElement(labels=label) for label in labels]
    data = model.data_preprocessor(dict(inputs=texts, data_samples=samples))
    assert data['inputs'].tolist()[1][0][4:] == [-1] * 3
    loss = model(**data, mode='loss')['loss']
    found = model(**data, mode='predict')
    nll = 0
    for text, label, said in zip(texts, labels, found, strict=True):
        theirs = of_transformers(model.backbone.anchors[1])
        own = theirs(text).logits[0, :-1].log_softmax(1)
        own = -own.gather(1, text[0, 1:, None])[:, 0][label[0, 1:] >= 0]
        assert said.num_targets == len(own)
        assert said.nll == pytest.approx(own.sum().item(), rel=1e-4)
        nll += own.sum()
    assert_close(loss, nll / (4 + 3))
    empty = [sample([-100] * 7), sample([-100] * 4)]
    assert model(data['inputs'], empty, mode='loss')['loss'] == 0


def test_longer_texts_are_cut(build_lm):
    model = build_lm()
    labels = some_ids(1, 20)
    data = dict(inputs=[labels], data_samples=[BaseDataElement(labels=labels)])
    data = model.data_preprocessor(data)
    assert data['inputs'].shape == (1, 1, 16)
    (found,) = model(**data, mode='predict')
    assert found.num_targets == 15


@pytest.mark.parametrize('tied', [False, True])
def test_costs_are_those_that_torch_counts(build_lm, tied):
    model = build_lm(dict(tied=tied), plugins=BIASES)
    table, ids = cost_table(model), some_ids(1, 16)
    assert table.input_size == (1, 16)
    for stitch_id, anchor in zip((0, 1), model.backbone.anchors, strict=True):
        # LoRA and biases are merged; eager attention is counted on a CPU, too.
        plain = MODELS.build(
            anchor_config(anchor.depth, anchor.block_dims[0], tied=tied)
        )
        theirs = of_transformers(plain, attn_implementation='eager')
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            theirs(ids)
        rotations = 16 * 4 // 2  # of which transformers makes a product
        flops = counter.get_total_flops() // 2 - rotations
        assert table[stitch_id][:2] == (flops, theirs.num_parameters())
        lone = MODELS.build(
            dict(
                type='CausalLM',
                backbone=anchor_config(anchor.depth, anchor.block_dims[0], tied=tied),
            )
        )
        assert whole_model_cost(lone, (1, 16))[:2] == table[stitch_id][:2]
    # Stitch 2 leaves the fast anchor after block 0 and ends in the slow one.
    fast, slow = model.backbone.anchors
    parts = fast.embed_tokens, fast.blocks[0], *slow.blocks[2:], slow.norm, slow.lm_head
    params = sum(
        p.numel()
        for part in parts
        for n, p in part.named_parameters()
        if 'lora' not in n
    )
    assert table[2].params == params + 16 * 24 + 24
    times = measure_latency(model, rounds=1).by_stitch
    assert {*times} == {*table}
    assert min(times.values()) > 0


def test_layers_are_fitted_without_padding(build_lm):
    model, ids = build_lm(layer=dict(type='StitchingLayer')), some_ids(40, 1, 9)
    fit_stitching_layers(model.backbone, [ids])
    wanted = {
        k: v.clone() for k, v in model.backbone.stitching_layers.state_dict().items()
    }
    fit_stitching_layers(model.backbone, [F.pad(ids, (0, 5), value=-1)])
    assert_close(
        model.backbone.stitching_layers.state_dict(), wanted, rtol=1e-3, atol=1e-3
    )


@torch.no_grad()
def test_every_stitch_has_biases_of_its_own(build_lm):
    model, ids = build_lm(plugins=BIASES), some_ids(2, 1, 9)
    plain = build_lm(dict(qkv_bias=True))
    net = plain.backbone
    for stitch in model.backbone.space:
        set_stitch(model, stitch.id)
        set_stitch(plain, stitch.id)
        weights = {
            k: v for k, v in model.state_dict().items() if 'stitch_biases' not in k
        }
        missing = plain.load_state_dict(weights, strict=False).missing_keys
        for name, bias in model.backbone.stitch_biases.exported_weights(stitch).items():
            net.get_parameter(name).copy_(bias)
            missing.remove(f'backbone.{name}')
        assert_close(plain(ids), model(ids), rtol=1e-4, atol=1e-4)


def test_generation_follows_the_stitch(build_lm):
    model = build_lm()
    prompt, said = some_ids(4).tolist(), {}
    for stitch_id in model.backbone.space.ids:
        set_stitch(model, stitch_id)
        said[stitch_id] = tuple(model.generate(prompt, 6))
        assert len(said[stitch_id]) == 6
    theirs = of_transformers(model.backbone.anchors[1])
    ids = torch.tensor([prompt])
    found = theirs.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert said[1] == tuple(found[0, 4:].tolist())
    assert len({*said.values()}) > 1
    set_stitch(model, 1)
    assert model.generate(prompt, 6, eos=said[1][2]) == [
        *said[1][: said[1].index(said[1][2]) + 1]
    ]


@pytest.mark.parametrize(
    'config, said',
    [
        (dict(type='SNNetv2', anchors=OTHER), r'vocab_size=\(50, 60\); allowed: equal'),
        (dict(type='PlainViT', arch='tiny'), "'PlainViT'; allowed: 'HFDecoderAnchor'"),
        (dict(anchor_config(), out='maps'), "out='maps'; allowed: 'end'"),
    ],
)
def test_wrong_backbones_are_refused(config, said):
    with pytest.raises(ValueError, match=said):
        MODELS.build(dict(type='CausalLM', backbone=config))


def test_wrong_lengths_are_refused(build_lm):
    with pytest.raises(ValueError, match='length=1; allowed: 2 tokens or more'):
        build_lm(data_preprocessor=dict(type='TextPreprocessor', length=1))
    with pytest.raises(ValueError, match=r'input_size=\(8, 8\); allowed: \(1, number'):
        cost_table(build_lm(), (8, 8))
