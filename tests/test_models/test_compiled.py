"""Stitches traced by Dynamo; its graphs run uncompiled (``backend='eager'``)."""

import pytest
import torch
from config_models import CONFIGS, read
from narrowing import without_weights
from segmentor import segmentor_config, write_weights
from small import disturb, small
from torch.utils._pytree import tree_leaves

import snnet_mm as sn
from snnet_mm.costs import cost_table, measure_latency, measuring_setup
from snnet_mm.elastic.convert import elastic_model, give_chains
from snnet_mm.models import (
    compile_stitches,
    find_stitched_backbone,
    is_compiled,
    set_stitch,
)
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import write_plan
from snnet_mm.tasks import task_of

pytestmark = pytest.mark.filterwarnings('ignore')  # of torch while it traces
IMAGE = dict(img_shape=(32, 48), ori_shape=(32, 48), pad_shape=(32, 48))


def tensors_of(model, *inputs):
    with torch.no_grad():
        found = tree_leaves(getattr(model, task_of(model).compiled)(*inputs))
    return [value for value in found if isinstance(value, torch.Tensor)]


@pytest.fixture
def traced():
    """Sizes of the graphs that were traced, and a backend that notes and runs them."""
    torch._dynamo.reset()
    sizes = []

    def backend(graph, _):
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    return sizes, backend


@pytest.fixture
def model(tmp_path):
    """A segmentor with 14 stitches."""
    pytest.importorskip('mmseg')
    cfg = segmentor_config()
    for anchor in cfg.model.backbone.anchors:
        anchor.arch.depth = 4
    return disturb(init_model(cfg, None, device='cpu')).eval()


def test_compile_stitches_traces_each_once(model, traced):
    sizes, backend = traced
    ids = find_stitched_backbone(model).space.ids[:10]
    images = torch.randn(2, 3, 32, 48)
    expected = {}
    for i in ids:
        set_stitch(model, i)
        expected[i] = tensors_of(model, images, [IMAGE] * 2)
    compile_stitches(model, backend=backend)
    assert is_compiled(model)
    # More than Dynamo compiles for one function.
    for turn in range(2):
        for i in ids:
            set_stitch(model, i)
            (found,) = tensors_of(model, images, [dict(IMAGE, path=turn)] * 2)
            assert torch.equal(found, *expected[i])
    assert (len(ids), len(sizes)) == (10, 10)
    assert min(sizes) > 100  # backbone and head, without a break


BACKBONES = {
    'positions of another grid': small('vit', 32, img_size=48),
    'biases': small('vit', 32, img_size=48, rel_pos_bias=True),
    'rotations': dict(
        type='TimmAnchor',
        img_size=64,
        model='vit_small_patch16_dinov3',
        model_args=dict(embed_dim=32, depth=2, num_heads=2),
    ),
    'windows': dict(
        type='TimmStageAnchor',
        img_size=64,
        model='swin_tiny_patch4_window7_224',
        model_args=dict(embed_dim=4, depths=(2, 1, 1, 1), num_heads=(2,) * 4),
    ),
}
SLOW = 'rotations', 'windows'


@pytest.mark.parametrize(
    'kind',
    [pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in BACKBONES],
)
def test_compiled_chains_follow_new_weights(kind, traced):
    """Graphs hold none of the tensors that uncompiled models keep of their weights."""
    pytest.importorskip('mmseg')
    cfg = small('network')
    cfg.model.backbone = dict(BACKBONES[kind])
    cfg.model.decode_head.in_channels = 32
    model = elastic_model(init_model(cfg, None, device='cpu'))
    view = model.backbone.view
    give_chains(model, [write_plan([1] * len(view.widths), view.blocks)])
    disturb(model)
    inputs = torch.randn(1, 3, 64, 64), [dict(img_shape=(64, 64))]
    compile_stitches(model, backend=traced[1])
    for i in (0, 1):
        set_stitch(model, i)
        before = tensors_of(model, *inputs)
        weights = {
            k: 1.1 * v for k, v in model.state_dict().items() if v.is_floating_point()
        }
        model.load_state_dict(weights, strict=False)
        (found,), compiled = tensors_of(model, *inputs), model.encode_decode
        del model.encode_decode
        (expected,) = tensors_of(model, *inputs)
        model.encode_decode = compiled
        assert torch.equal(found, expected)
        assert not torch.equal(found, *before)
    assert len(traced[0]) == 2


def test_compiled_model_trains_uncompiled(model, traced):
    sizes, backend = traced
    compile_stitches(model, backend=backend)
    model.train()
    tensors_of(model, torch.randn(2, 3, 32, 48), [IMAGE] * 2)
    assert sizes == []


def test_compiled_stitches_are_timed_whole(model, traced):
    sizes, backend = traced
    costs = cost_table(model, (32, 48))
    compile_stitches(model, backend=backend)
    assert cost_table(model, (32, 48)).rows == costs.rows
    times = measure_latency(model, (32, 48), rounds=2, check=[3, 0])
    assert times.by_stitch.keys() == {0, 3}
    assert min(times.by_stitch.values()) > 0
    assert len(sizes) == 2
    assert ', compiled, ' in str(measuring_setup(model, 1))


def test_measure_times_all_compiled_stitches(traced):
    pytest.importorskip('mmseg')
    cfg = segmentor_config()
    cfg.model.backbone.stitch_ids = [0, 1]
    model = init_model(cfg, None, device='cpu')
    compile_stitches(model, backend=traced[1])
    rows = sn.measure(model, (32, 48), latency=True).rows
    assert [row.id for row in rows if row.latency > 0] == [0, 1]


def test_stitches_that_cannot_be_compiled_are_named(model):
    def no_compiler(graph, inputs):
        raise RuntimeError('no C++ compiler')

    compile_stitches(model, backend=no_compiler)
    set_stitch(model, 4)
    words = r'compile=True is invalid: expected False: stitch 4 .*no C\+\+ compiler'
    with pytest.raises(ValueError, match=words):
        tensors_of(model, torch.randn(1, 3, 32, 48), [IMAGE])


def test_load_compiles(tmp_path):
    pytest.importorskip('mmseg')
    cfg, path = segmentor_config(), tmp_path / 'seg.pth'
    write_weights(cfg, path)
    assert is_compiled(sn.load(cfg, path, device='cpu', compile=True))
    assert not is_compiled(sn.load(cfg, path, device='cpu'))


@pytest.mark.slow
@pytest.mark.parametrize(
    'name',
    [
        'toy/cls_snnetv2-fast-slow_1xb16-600_toy-scenes-64x64',
        'toy/dpt_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64',
        'toy/mask-rcnn_snnetv2-fast-slow_1xb8-300_toy-scenes-64x64',
        'imagenet/tiny/snnetv1-resnet-fast-slow_1xb64-600_tinyimagenet20-64x64',
        'imagenet/tiny/snnetv1-swin-fast-slow_1xb64-600_tinyimagenet20-64x64',
        'bridging/tiny/bridge-resnet-swin-bottleneck_1xb64-300_tinyimagenet20-64x64',
        'bridging/tiny/bridge-vit-resnet-bottleneck_1xb64-300_tinyimagenet20-64x64',
        'esta/tiny/esta-ti-s-b_1xb64-600_tinyimagenet20-64x64',
        'imagenet/snnetv1-levit-192-256_8xb128-100e_in1k-224x224',
    ],
)
def test_compile_stitches_of_every_task_and_family(name, traced):
    sizes, backend = traced
    cfg = read(CONFIGS / f'{name}.py')
    without_weights(cfg.model)
    model, side = init_model(cfg, None, device='cpu'), int(name[-3:].lstrip('x'))
    inputs = [torch.randn(1, 3, side, side)]
    if task_of(model).compiled == 'encode_decode':
        inputs.append([dict(img_shape=(side, side))])
    ids = find_stitched_backbone(model).space.ids[-2:]
    expected = {}
    for i in ids:
        set_stitch(model, i)
        expected[i] = tensors_of(model, *inputs)
    compile_stitches(model, backend=backend)
    for i in ids:
        set_stitch(model, i)
        found = tensors_of(model, *inputs)
        for one, other in zip(found, expected[i], strict=True):
            assert torch.equal(one, other)
    assert len(sizes) == 2
