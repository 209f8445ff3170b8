"""EoMT: queries through the last blocks of a plain ViT."""

import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from torch.testing import assert_close

import snnet_mm.tasks.mmseg.eomt  # noqa: F401
from snnet_mm.anchors import PlainViT
from snnet_mm.tasks.mmdet import eomt

pytestmark = pytest.mark.ops

VIT = dict(
    type='PlainViT',
    arch=dict(embed_dims=16, depth=2, num_heads=2),
    img_size=32,
    patch_size=8,
    final_norm=True,
    layer_scale_init=1.0,
)
QUERIES, CLASSES = 5, 3


def build(kind, scope, num_points=64, **classes):
    init_default_scope(scope)
    torch.manual_seed(0)
    settings = dict(num_queries=QUERIES, channels=8, num_points=num_points)
    return MODELS.build(dict(type=kind, vit=VIT, **settings, **classes))


@pytest.fixture
def head():
    return build('EoMTSegHead', 'mmseg', num_classes=CLASSES)


@pytest.fixture
def maps():
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(2, *n, generator=generator) for n in ((16, 4, 4), (16,)))
    return [tuple(drawn)]


@torch.no_grad()
def test_eomt_seg_head_runs_queries_with_tokens(head, maps):
    """Through the blocks, with the tokens of the backbone."""
    classes, masks = head.eval()(maps)
    assert len(classes) == len(masks) == 1
    patches, cls = maps[0]
    tokens = patches.flatten(2).mT
    tokens = torch.cat([head.queries.weight.expand(2, -1, -1), cls[:, None], tokens], 1)
    for block in head.vit.blocks:
        tokens = block(tokens, (4, 4))
    tokens = head.vit.norm(tokens)
    assert_close(classes[0], head.cls_embed(tokens[:, :QUERIES]))
    upscaled = head.upscale(tokens[:, -16:].mT.reshape(2, 16, 4, 4))
    wanted = torch.einsum(
        'bqc,bchw->bqhw', head.mask_embed(tokens[:, :QUERIES]), upscaled
    )
    assert masks[0].shape == (2, QUERIES, 16, 16)
    assert_close(masks[0], wanted)


def test_eomt_seg_head_masks_attention_until_end(head, maps, monkeypatch):
    """A query attends to the patches of its mask."""
    head.train()
    running = MessageHub.get_current_instance().runtime_info
    monkeypatch.setitem(running, 'max_iters', 10)
    monkeypatch.setitem(running, 'iter', 0)  # not that of another test's training
    tokens = torch.zeros(1, QUERIES + 1 + 16, 16)
    masks = torch.full((1, QUERIES, 16, 16), -1.0)
    masks[:, 0, :8, :4] = 1  # two patches in the first column
    allowed = head._attended(tokens, (4, 4), masks, 0)[0, 0]
    assert allowed[: QUERIES + 1, : QUERIES + 1].all()
    assert allowed[QUERIES:].all()
    inside = allowed[:QUERIES, QUERIES + 1 :]
    assert inside[0].nonzero()[:, 0].tolist() == [0, 4]
    assert not inside[1:].any()
    monkeypatch.setitem(running, 'iter', 9)
    assert head._attended(tokens, (4, 4), masks, 0).all()
    classes, _ = head(maps)
    assert len(classes) == 3  # before both blocks, and at the end


def test_mask_probability_is_that_of_the_authors():
    """Of four blocks in 24876 steps, as their config for COCO and ViT-L has it."""
    starts, ends = (3317, 8292, 13268, 18244), (6634, 11609, 16585, 21561)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        at = (start, (start + end) / 2, end)
        found = [eomt.mask_probability(i, 4, n / 24876) for n in at]
        assert found == pytest.approx([1, 0.5**0.9, 0], abs=1e-2)


def test_eomt_seg_head_loss_after_every_block(head, maps):
    """Those of Mask2Former."""
    labels = torch.zeros(1, 32, 32, dtype=torch.long)
    labels[:, 16:] = 2
    labels[:, :, :4] = 255
    sample = PixelData(data=labels)
    samples = [type('S', (), dict(gt_sem_seg=sample, metainfo={}))() for _ in range(2)]
    head.train()
    losses = head.loss(maps, samples, None)
    kinds = {'loss_cls', 'loss_mask', 'loss_dice'}
    wanted = kinds | {f'd{i}.{kind}' for i in range(2) for kind in kinds}
    assert losses.keys() == wanted
    sum(losses.values()).backward()
    assert all(p.grad.abs().sum() > 0 for p in head.vit.blocks.parameters())
    meta = dict(img_shape=(32, 32))
    logits = head.eval().predict(maps, [meta, meta], None)
    assert logits.shape == (2, CLASSES, 32, 32)


def test_eomt_head_half_precision_losses_equal_float32(maps):
    """4 masks of 2**15 points: float16 has no such number."""
    head = build('EoMTHead', 'mmdet', num_things_classes=1, num_points=2**15).train()
    objects = torch.zeros(2, 32, 32, dtype=torch.long)
    objects[0, :8], objects[1, 20:, 4:9] = 1, 1
    labels = torch.zeros(2, dtype=torch.long)
    instances = [InstanceData(labels=labels, masks=objects)] * 2
    classes, masks = ([x.detach().half() for x in xs] for xs in head(maps))

    def losses(dtype):
        torch.manual_seed(0)
        found = ([x.to(dtype) for x in xs] for xs in (classes, masks))
        with torch.autocast(
            'cpu', dtype=torch.bfloat16, enabled=dtype != torch.float32
        ):
            return head.loss_by_feat(*found, instances, [{}, {}])

    wanted = losses(torch.float32)
    assert all(value.isfinite() for value in wanted.values())
    assert_close(losses(torch.float16), wanted, rtol=0, atol=0)


BEIT = dict(type='TimmAnchor', model='beit_base_patch16_224')
BEIT |= dict(model_args=dict(depth=2, embed_dim=16, num_heads=2))


@pytest.mark.parametrize(
    ('vit', 'queries', 'message'),
    [
        (BEIT, 9, r"'TimmAnchor'.*vit\.type"),
        (VIT | dict(rel_pos_bias=True), 9, r'vit\.type'),
        (VIT, 0, 'num_queries=0 is '),
    ],
)
def test_eomt_head_other_blocks_and_no_queries_are_refused(vit, queries, message):
    init_default_scope('mmdet')
    with pytest.raises(ValueError, match=message):
        eomt.EoMTHead(vit=vit, num_things_classes=1, num_queries=queries)


@torch.no_grad()
def test_plain_vit_is_cut_into_backbone_and_head(tmp_path):
    arch = dict(embed_dims=16, depth=5, num_heads=2)
    settings = {k: v for k, v in VIT.items() if k != 'type'}
    whole = PlainViT(**settings | dict(arch=arch)).eval()
    for parameter in whole.parameters():
        parameter.normal_(std=0.2)
    file = str(tmp_path / 'whole.pth')
    torch.save(whole.state_dict(), file)
    weights = dict(type='Pretrained', checkpoint=file)
    first = settings | dict(arch=dict(arch, depth=3), final_norm=False)
    first = PlainViT(**first, init_cfg=dict(weights, blocks=(0, 3))).eval()
    last = settings | dict(init_cfg=dict(weights, blocks=(3, 5)))
    last = PlainViT(**last, embedding=False).eval()
    for part in (first, last):
        part.init_weights()
    images = torch.randn(2, 3, 32, 32)
    state = first.embed(images)
    for anchor in (first, last):
        for i in range(anchor.depth):
            state = anchor.run_block(state, i)
    assert torch.equal(last.to_feature_map(state), whole(images)[0])
    last.init_cfg = dict(weights, blocks=(3, 6))
    with pytest.raises(ValueError, match=r'\(3, 6\).*init_cfg\.blocks'):
        last.init_weights()


DINOV3 = dict(type='TimmAnchor', model='vit_small_patch16_dinov3', img_size=64)
DINOV2 = DINOV3 | dict(model='vit_small_patch14_reg4_dinov2', img_size=56)
WIDTH = dict(embed_dim=16, num_heads=2)


@torch.no_grad()
@pytest.mark.parametrize('vit', [DINOV3, DINOV2], ids=lambda vit: vit['model'])
def test_timm_anchor_is_cut_into_backbone_and_head(vit, tmp_path):
    """Queries that nothing attends to change no other token, wherever these are."""
    whole = MODELS.build(dict(vit, model_args=dict(WIDTH, depth=5))).eval()
    for parameter in whole.parameters():
        parameter.normal_(std=0.2)
    path = str(tmp_path / 'whole.pth')
    torch.save(whole.state_dict(), path)
    init = dict(type='Pretrained', checkpoint=path)
    init_default_scope('mmseg')
    parts = []
    for blocks in ((0, 3), (3, 5)):
        args = dict(WIDTH, depth=blocks[1] - blocks[0])
        parts.append(dict(vit, model_args=args, init_cfg=dict(init, blocks=blocks)))
    backbone = MODELS.build(dict(parts[0], final_norm=False, out='end')).eval()
    settings = dict(num_queries=QUERIES, channels=8, num_classes=CLASSES)
    head = MODELS.build(dict(type='EoMTSegHead', vit=parts[1], **settings)).eval()
    backbone.init_weights()
    head.vit.init_weights()
    state, whole.out = backbone(torch.ones(2, 3, 64, 64)), 'end'
    length = QUERIES + state.tokens.shape[1]
    alone = torch.ones(2, 1, length, length, dtype=torch.bool)
    alone[:, :, QUERIES:, :QUERIES] = False
    tokens = torch.cat([torch.randn(2, QUERIES, 16), state.tokens], 1)
    for i in range(2):
        tokens = head.vit.run_layers(i, tokens, state.grid, alone)
    wanted = whole(torch.ones(2, 3, 64, 64)).tokens
    assert_close(head.vit.trunk.norm(tokens[:, QUERIES:]), wanted, rtol=1e-5, atol=1e-5)
    classes, masks = head(state)
    assert classes[0].shape == (2, QUERIES, CLASSES + 1)
    assert masks[0].shape[2:] == tuple(4 * n for n in state.grid)
