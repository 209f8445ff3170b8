import copy

import pytest
import torch
from mmengine.model import BaseModel, ImgDataPreprocessor
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.analysis import cost_table, preprocessed_size
from snnet_mm.models import SNNetv2, set_stitch

WIDTHS, DEPTHS = (8, 12), (3, 7)
PATCH, SIZE = 8, (32, 48)
NUM_PATCHES = SIZE[0] // PATCH * SIZE[1] // PATCH
NUM_TOKENS = 1 + NUM_PATCHES


def embed_cost(dim):
    """MACs and parameters: every patch is projected; cls token, positions."""
    macs = NUM_PATCHES * dim * 3 * PATCH**2
    params = dim * 3 * PATCH**2 + dim + dim + 16 * dim  # built for 32x32: 16 patches
    return macs, params


def block_cost(dim):
    """MACs and parameters of a transformer block with LayerScale."""
    n = NUM_TOKENS
    qkv, out, mlp = n * dim * 3 * dim, n * dim * dim, 2 * n * dim * 4 * dim
    attention = 2 * n * n * dim  # queries by keys, and weights by values
    matrices = 12 * dim**2
    vectors = 3 * dim + dim + 4 * dim + dim + 2 * 2 * dim + 2 * dim
    return qkv + attention + out + mlp, matrices + vectors


def layer_cost(name):
    source, target = WIDTHS if name.startswith('0to1') else WIDTHS[::-1]
    return NUM_TOKENS * source * target, source * target + target


def cost_by_hand(stitch, maps):
    """MACs and parameters of a route and of the slow blocks' maps that it gives."""
    parts = [embed_cost(WIDTHS[stitch.segments[0].anchor])]
    layers = set()
    run = set()
    for n, (a, begin, end) in enumerate(stitch.segments):
        parts += [block_cost(WIDTHS[a])] * (end - begin)
        run |= {(a, i) for i in range(begin, end)}
        if n and a == 1:
            layers.add(f'0to1_{stitch.segments[n - 1].end - 1}')
        elif n:
            layers.add(f'1to0_{begin - 1}')
    layers |= {f'0to1_{j * DEPTHS[0] // DEPTHS[1]}' for j in maps if (1, j) not in run}
    parts += [layer_cost(name) for name in layers]
    return tuple(map(sum, zip(*parts, strict=True)))


LAYERS = [dict(type='StitchingLayer'), dict(type='LoRAStitchingLayer', rank=2)]


@pytest.mark.parametrize('layer', LAYERS, ids=['full', 'lora'])
@pytest.mark.parametrize(
    ('out_indices', 'eval_maps', 'maps'),
    [
        ((-1,), None, [6]),
        ((0, 3, 6), None, [0, 3, 6]),
        (range(7), None, range(7)),
        ((0, 3, 6), (1,), [3]),
    ],
)
def test_costs_in_closed_form(build_snnet, layer, out_indices, eval_maps, maps):
    net = build_snnet(
        DEPTHS, stitching_layer=layer, out_indices=out_indices, eval_maps=eval_maps
    )
    table = cost_table(net, SIZE)
    assert table.input_size == SIZE
    assert list(table) == list(net.space.ids)
    for stitch in net.space:
        assert table[stitch.id][:2] == cost_by_hand(stitch, maps), stitch


def test_costs_of_windows_in_closed_form(build_snnet):
    """24 patches in windows of 3x3: 6x6 places with the padding; block 1 is global."""
    windows = dict(
        cls_token=False, window_size=3, global_blocks=(1,), decomposed_rel_pos=True
    )
    net = build_snnet(DEPTHS, anchor=windows)
    fast = cost_table(net, SIZE)[0]
    dim, head = WIDTHS[0], WIDTHS[0] // 2
    mlp, in_windows = NUM_PATCHES * 8 * dim**2, 36
    windowed = in_windows * (4 * dim**2 + 2 * 9 * dim + (3 + 3) * dim) + mlp
    everywhere = NUM_PATCHES * (4 * dim**2 + 2 * NUM_PATCHES * dim + (4 + 6) * dim)
    embed, embed_params = embed_cost(dim)
    projection = NUM_PATCHES * WIDTHS[0] * WIDTHS[1]
    assert fast.flops == embed + 2 * windowed + everywhere + mlp + projection
    _, block_params = block_cost(dim)
    offsets = 2 * 2 * (2 * 3 - 1) * head + 2 * (2 * 4 - 1) * head
    layer_params = (WIDTHS[0] + 1) * WIDTHS[1]
    # No cls token.
    expected = embed_params - dim + 3 * block_params + offsets + layer_params
    assert fast.params == expected


def test_the_end_output_needs_no_projection(build_snnet):
    net = build_snnet(DEPTHS, stitching_layer=LAYERS[0], out='end')
    table = cost_table(net, SIZE)
    for stitch in net.space:
        assert table[stitch.id][:2] == cost_by_hand(stitch, []), stitch


def test_costs_are_whole_numbers(build_snnet):
    for cost in cost_table(build_snnet(), SIZE).costs.values():
        assert type(cost.flops) is int
        assert type(cost.params) is int


def test_parameters_of_everything_optional(build_snnet):
    net = build_snnet(
        DEPTHS,
        anchor=dict(rel_pos_bias=True, final_norm=True, num_registers=2),
        stitching_layer=LAYERS[0],
    )
    table = cost_table(net, SIZE)
    fast, slow = net.anchors
    last = net.stitching_layers['0to1_2']
    joint = net.stitching_layers['0to1_0']

    def size(*modules):
        return sum(p.numel() for m in modules for p in m.parameters())

    assert table[1].params == size(slow)
    assert table[0].params == size(fast, last)
    fs = size(fast) - size(*fast.blocks[1:], fast.norm)
    fs += size(joint, *slow.blocks[3:], slow.norm)
    assert table[2].params == fs


def counted(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize('depths', [(4, 9), (2, 4, 9)], ids=['pair', 'chain'])
@pytest.mark.parametrize('layer', LAYERS, ids=['full', 'lora'])
@torch.no_grad()
def test_costs_equal_those_of_real_forwards(build_snnet, layer, depths):
    net = build_snnet(
        depths,
        (8, 12, 16)[: len(depths)],
        stitching_layer=layer,
        out_indices=(1, 4, 8),
        eval_maps=(0, 2),
    )
    table = cost_table(net, (40, 24))
    shipped = copy.deepcopy(net).to('meta').eval()
    for name, module in shipped.stitching_layers.items():
        shipped.stitching_layers[name] = module.merged()
    images = torch.empty(1, 3, 40, 24, device='meta')
    for stitch in net.space:
        shipped.set_stitch(stitch.id)
        assert table[stitch.id].flops == counted(lambda: shipped(images)), stitch


def test_low_rank_updates_of_anchors_cost_nothing(build_snnet):
    plain = cost_table(build_snnet(), (32, 32))
    net = build_snnet(anchor=dict(lora=dict(rank=3)))
    assert cost_table(net, (32, 32)).costs == plain.costs
    # Merged for counting alone.
    assert type(net.anchors[0].blocks[0].attn.qkv).__name__ == 'LoRALinear'
    assert net.anchors[1].blocks[6].attn.proj.lora_A.shape == (3, 12)


@pytest.fixture
def segmentor(build_snnet):
    """SETR of mmseg with an auxiliary head, on a small stitched backbone."""
    pytest.importorskip('mmseg')
    from mmseg.models import EncoderDecoder, SegDataPreProcessor

    def head(j, convs):
        return dict(
            type='SETRUPHead',
            in_channels=12,
            channels=6,
            in_index=j,
            num_classes=5,
            norm_cfg=dict(type='BN'),
            num_convs=convs,
            up_scale=4,
            kernel_size=1,
        )

    model = EncoderDecoder(
        data_preprocessor=SegDataPreProcessor(size=SIZE),
        backbone=dict(
            type='SNNetv2',
            anchors=[
                dict(
                    type='PlainViT',
                    arch=dict(embed_dims=dim, depth=depth, num_heads=2),
                    img_size=32,
                    patch_size=PATCH,
                    drop_path_rate=0.1,
                )
                for dim, depth in zip(WIDTHS, DEPTHS, strict=True)
            ],
            stitching_layer=dict(type='StitchingLayer'),
            out_indices=(2, 6),
            eval_maps=(1,),
        ),
        decode_head=head(1, 1),
        auxiliary_head=[head(0, 2)],
        test_cfg=dict(mode='whole'),
    )
    model.backbone.anchors[0].eval()
    set_stitch(model, 5)
    return model


def test_costs_of_a_segmentor(segmentor):
    table = cost_table(segmentor)
    assert table.input_size == SIZE
    # The decode head: a 1x1 convolution, then one to the classes at 4 times the size.
    head_macs = NUM_PATCHES * 12 * 6 + 16 * NUM_PATCHES * 6 * 5
    head_params = sum(p.numel() for p in segmentor.decode_head.parameters())
    for stitch in segmentor.backbone.space:
        macs, params = cost_by_hand(stitch, [6])
        assert table[stitch.id][:2] == (macs + head_macs, params + head_params)


@pytest.fixture
def depth_model():
    """DPT on a small stitched backbone with cls tokens."""
    pytest.importorskip('mmseg')
    from mmseg.models import SegDataPreProcessor

    from snnet_mm.integrations.mmseg import DPTDepthEstimator

    model = DPTDepthEstimator(
        data_preprocessor=SegDataPreProcessor(size=SIZE),
        backbone=dict(
            type='SNNetv2',
            anchors=[
                dict(
                    type='PlainViT',
                    arch=dict(embed_dims=dim, depth=depth, num_heads=2),
                    img_size=32,
                    patch_size=PATCH,
                )
                for dim, depth in zip(WIDTHS, DEPTHS, strict=True)
            ],
            stitching_layer=dict(type='StitchingLayer'),
            out_indices=(0, 2, 4, 6),
            with_cls=True,
        ),
        decode_head=dict(
            type='DPTDepthHead',
            in_channels=12,
            channels=6,
            post_process_channels=(4, 6, 8, 10),
        ),
        test_cfg=dict(mode='whole'),
    )
    set_stitch(model, 5)
    return model


def test_costs_of_a_depth_model(depth_model):
    table = cost_table(depth_model)
    head = {}
    for stitch in depth_model.backbone.space:
        macs, params = cost_by_hand(stitch, [0, 2, 4, 6])
        flops, total = table[stitch.id][:2]
        head[flops - macs] = total - params
    # One head, whatever the stitch; with all of its parameters.
    assert list(head.values()) == [
        sum(p.numel() for p in depth_model.decode_head.parameters())
    ]


@pytest.mark.parametrize('name', ['segmentor', 'depth_model'])
def test_counting_leaves_the_model_as_it_was(request, name):
    model = request.getfixturevalue(name)

    def tensors():
        return {
            k: (id(v), v.data_ptr(), v.device, v._version)
            for k, v in model.state_dict(keep_vars=True).items()
        }

    def hooks():
        return [
            len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()
        ]

    model.backbone.train()
    model.backbone.anchors[0].eval()
    before = (
        tensors(),
        hooks(),
        [m.training for m in model.modules()],
        {k: v.clone() for k, v in model.state_dict().items()},
    )
    cost_table(model)
    assert tensors() == before[0]
    assert hooks() == before[1]
    assert [m.training for m in model.modules()] == before[2]
    assert {v.device.type for v in model.state_dict().values()} == {'cpu'}
    for key, value in model.state_dict().items():
        assert value.equal(before[3][key]), key
    assert model.backbone.active_stitch.id == 5
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize('layer', LAYERS, ids=['full', 'lora'])
def test_counting_draws_no_random_number(build_snnet, layer):
    net, state = build_snnet(stitching_layer=layer), torch.get_rng_state()
    cost_table(net, SIZE)
    assert torch.get_rng_state().equal(state)


@torch.no_grad()
def test_outputs_are_the_same_after_counting(build_snnet):
    net = build_snnet(anchor=dict(rel_pos_bias=True)).eval()
    images = torch.randn(1, 3, *SIZE)
    before = net(images)[0]
    cost_table(net, SIZE)
    assert net(images)[0].equal(before)


def test_a_wrapped_model_costs_the_same(build_snnet):
    net = build_snnet()
    assert cost_table(nn.DataParallel(net), SIZE) == cost_table(net, SIZE)


def test_costs_do_not_depend_on_mode_or_active_stitch(build_snnet):
    net = build_snnet(out_indices=(0, 6), eval_maps=(1,))
    table = cost_table(net.train(), SIZE)
    for stitch_id in net.space.ids:
        net.set_stitch(stitch_id)
        assert cost_table(net.eval(), SIZE) == table
        assert net.active_stitch.id == stitch_id


class Model(BaseModel):
    """A backbone and a head, of which prediction calls what it calls in mm models."""

    def __init__(self, backbone, head, **kwargs):
        super().__init__(**kwargs)
        self.backbone, self.head = backbone, head

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return self.head.forward(self.backbone(inputs)[0])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(12, 3, 1), nn.Conv2d(12, 3, 1)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.a(x) + self.b(x)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(12, 3, 1)
        self.register_buffer('scale', torch.ones(12, 1, 1), persistent=False)

    def forward(self, x):
        return self.conv(x * self.scale)


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(4, 4)
        self.queries = nn.Parameter(torch.zeros(5, 12))

    def forward(self, x):
        return self.queries @ x.flatten(2)


@pytest.mark.parametrize(
    ('head', 'macs', 'params'),
    [
        (Tied, 2 * NUM_PATCHES * 12 * 3, 12 * 3 + 3 + 3),
        (Buffered, NUM_PATCHES * 12 * 3, 12 * 3 + 3),
        (Queries, NUM_PATCHES * 12 * 5, 12 * 5),
    ],
)
def test_heads_of_every_make(build_snnet, head, macs, params):
    net = build_snnet(DEPTHS, stitching_layer=LAYERS[0])
    table = cost_table(Model(net, head()), SIZE)
    for stitch in net.space:
        expected = cost_by_hand(stitch, [6])
        assert table[stitch.id][:2] == (expected[0] + macs, expected[1] + params)


def test_the_size_is_that_of_the_data_preprocessor(build_snnet):
    sized = ImgDataPreprocessor()
    sized.size = [24, 40]
    model = Model(build_snnet(), nn.Identity(), data_preprocessor=sized)
    assert preprocessed_size(model) == (24, 40)
    assert cost_table(model) == cost_table(model, (24, 40))
    assert cost_table(model, SIZE).input_size == SIZE


def test_without_a_size_there_are_no_flops(build_snnet):
    for model in (build_snnet(), Model(build_snnet(), nn.Identity())):
        with pytest.raises(ValueError, match='input_size, or model.data_preprocessor'):
            cost_table(model)


def test_without_a_stitched_backbone_there_are_no_stitches():
    with pytest.raises(ValueError, match='Conv2d holds 0 stitched backbones'):
        cost_table(nn.Conv2d(3, 3, 1), SIZE)


def ade20k_segmentor():
    pytest.importorskip('mmseg')
    from mmseg.models import EncoderDecoder, SegDataPreProcessor

    head = dict(
        type='SETRUPHead',
        in_channels=1024,
        channels=256,
        num_classes=150,
        dropout_ratio=0,
        norm_cfg=dict(type='BN'),
        up_scale=4,
        kernel_size=1,
    )
    anchor = dict(type='PlainViT', img_size=512, rel_pos_bias=True)
    with torch.device('meta'):
        return EncoderDecoder(
            data_preprocessor=SegDataPreProcessor(size=(512, 512)),
            backbone=dict(
                type='SNNetv2',
                anchors=[dict(arch=arch, **anchor) for arch in ('small', 'large')],
                out_indices=(9, 14, 19, 23),
                eval_maps=(3,),
            ),
            decode_head=dict(head, in_index=3, num_convs=1),
            auxiliary_head=[dict(head, in_index=j, num_convs=2) for j in range(3)],
            test_cfg=dict(mode='whole'),
        )


def test_published_costs_of_deit3_small_and_large_on_ade20k(published):
    model = ade20k_segmentor()
    assert isinstance(model.backbone, SNNetv2)
    table = cost_table(model)
    assert set(table) == set(published)
    for stitch in model.backbone.space:
        ratio = table[stitch.id].flops / published[stitch.id]['flops']
        assert abs(ratio - 1) < (0.01 if stitch.end_anchor == 1 else 0.03), stitch


def test_published_size_of_deit3_small_and_large_on_ade20k():
    model = ade20k_segmentor()
    params = sum(p.numel() for p in model.parameters())
    auxiliary = sum(p.numel() for p in model.auxiliary_head.parameters())
    assert params / 1e6 == pytest.approx(338.99, abs=0.005)
    assert (params - auxiliary) / 1e6 == pytest.approx(337.88, abs=0.005)
