"""Every tensor is created on the model's device: runs on fake CUDA tensors."""

import logging
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from config_models import read
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.registry import MODELS, init_default_scope
from mmengine.utils import import_modules_from_strings
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from narrowing import SIDE, narrow_own
from small import small
from torch._subclasses.fake_tensor import FakeTensorMode

from snnet_mm.costs import cost_table
from snnet_mm.esta.importance import saliency, trained_parameters
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.evaluation.one_pass import run_one_pass
from snnet_mm.models import (
    ElasticBackbone,
    SNNetv2,
    find_stitched_backbone,
    fit_stitching_layers,
    set_stitch,
    set_stitches,
)
from snnet_mm.models.layers.least_squares import LeastSquares, fit_in_turn
from snnet_mm.tasks import task_of
from snnet_mm.utils import dicts_in

# Caches compare where weights are, which is the same for all fake tensors.
pytestmark = pytest.mark.filterwarnings('ignore:Accessing the data pointer')
CUDA = torch.device('cuda:0')
ESTA = 'esta/fgvc/adapt-then-esta-augreg-ti-s-b_1xb64-100e_cub-224x224.py'
TAUGHT = 'imagenet/snnetv1-deit-ti-s-b_8xb128-50e_in1k-224x224.py'
# Configs whose networks, heads and stitching layers are of every family.
FAMILIES = dict(
    setr='setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py',
    dpt='dpt/dpt_snnetv2-deit3-s-l_4xb4-24e_nyu-416x544.py',
    vitdet='vitdet/mask-rcnn_snnetv2-deit3-s-l_8xb1-100e_coco-1024x1024.py',
    swin='imagenet/snnetv1-swin-ti-s-b_8xb128-50e_in1k-224x224.py',
    resnet='imagenet/snnetv1-resnet18-50_8xb128-30e_in1k-224x224.py',
    levit='imagenet/snnetv1-levit-192-256_8xb128-100e_in1k-224x224.py',
    convnext='esta/fgvc/snnetv1-convnext-t-s-b_1xb64-100e_cub-224x224.py',
    bridge='bridging/bridge-resnet50-vit-s_2xb256-10e_in1k-224x224.py',
)


@contextmanager
def fake_cuda(*models):
    """Replace all weights by fake tensors on a GPU, of which only shapes are known."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in (module for model in models for module in model.modules()):
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        settings = dict(dtype=tensor.dtype, device=CUDA)
                        fake = torch.empty(tensor.shape, **settings)
                        if name in module._parameters:
                            fake = torch.nn.Parameter(fake, tensor.requires_grad)
                        tensors[name] = fake
        yield


@pytest.fixture
def tiny():
    cfg = small('tiny')
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


@pytest.fixture
def build(tmp_path):
    """Builds the narrow model of a config, with ViTs of a depth if it is given."""

    def build(name, depth=None):
        cfg = read(name)
        narrow_own(cfg, tmp_path, tmp_path)
        for part in dicts_in(cfg.model):
            if depth and 'depth' in (part.get('arch') or ()):
                part.arch.depth = depth
        return MODELS.build(cfg.model)

    return build


def images():
    return torch.empty(2, 3, SIDE, SIDE, device=CUDA)


def some(ids):
    """Return some stitches of every kind."""
    return ids[:: max(1, len(ids) // 4)]


def devices(outputs):
    """Return the devices of all tensors in nested sequences."""
    if isinstance(outputs, torch.Tensor):
        return {outputs.device}
    nested = outputs if isinstance(outputs, (tuple, list)) else ()
    return set().union(*map(devices, nested))


class DeviceMetric(BaseMetric):
    """Collects the devices of predictions in place of their scores."""

    def process(self, data_batch, data_samples):
        for sample in data_samples:
            maps = sample['pred_sem_seg'], sample['seg_logits']
            self.results += [found['data'].device for found in maps]

    def compute_metrics(self, results):
        return dict(devices=len({*results}))


def test_run_one_pass_predicts_and_scores_on_device(tiny, monkeypatch):
    # Fake tensors have no values to be compared; here, all images are the same.
    monkeypatch.setattr(torch, 'equal', lambda a, b: a.shape == b.shape)
    model, ids = tiny.eval(), some(tiny.backbone.space.ids)
    runner = SimpleNamespace(
        model=model, call_hook=lambda *args, **kwargs: None, logger=logging.getLogger()
    )
    model.data_preprocessor._device = CUDA  # as after model.to(CUDA)
    model.test_cfg.mode = 'whole'  # sliding windows read values
    size = dict(img_shape=(SIDE, SIDE), ori_shape=(SIDE + 9, SIDE))
    buffers = MetricBuffers(Evaluator(DeviceMetric()), ids)
    with fake_cuda(model):
        image = torch.empty(3, SIDE, SIDE, dtype=torch.uint8)  # of the loader
        batch = dict(inputs=[image], data_samples=[SegDataSample(metainfo=size)])
        run_one_pass(runner, 'test', [batch, batch], buffers)
    for i in ids:
        with buffers.of(i):
            # Logits and labels of two batches.
            assert buffers.evaluator.metrics[0].results == [CUDA] * 4


@pytest.mark.parametrize('name', [ESTA, TAUGHT])
def test_distillation_losses_stay_on_device(build, name):
    """The slowest anchor of a sandwich, and another network."""
    model = build(name, depth=2)
    teachers = [model.teacher_on(torch.device('cpu'))] if name == TAUGHT else []
    ids = find_stitched_backbone(model).space.ids
    with fake_cuda(model, *teachers):
        set_stitches(model, ids[3:4] if teachers else ids[2:4])
        samples = [DataSample(gt_score=torch.empty(2, device=CUDA)) for _ in range(2)]
        losses = model(images(), samples, mode='loss')
        found = {n: v.device for n, v in losses.items() if 'loss' in n}
        assert any(name.endswith('loss_distill') for name in found)
        assert {*found.values()} == {CUDA}


@pytest.fixture
def unchecked_sums(monkeypatch):
    """Fake tensors have no values to be checked, and no success to be asked for."""
    monkeypatch.setattr(LeastSquares, 'sums', property(lambda self: self._sums))
    found = torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, 'cholesky_ex', lambda a: (found(a)[0], False))


def test_stitched_backbone_stays_on_device(tiny, unchecked_sums):
    """Least squares, saliency, and forward passes of all kinds of stitches."""
    backbone = tiny.backbone
    with fake_cuda(tiny):
        assert fit_stitching_layers(backbone, [images()]) == 2
        weights = {t.device for t in backbone.stitching_layers.parameters()}
        assert weights == {CUDA}
        parameters = trained_parameters(tiny, backbone.active_stitch)
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        assert saliency(parameters).device == CUDA
        for mode in True, False:
            tiny.train(mode)
            for i in some(backbone.space.ids):
                backbone.set_stitch(i)
                assert devices(backbone(images())) == {CUDA}


@pytest.mark.parametrize('name', FAMILIES.values(), ids=FAMILIES)
def test_stitches_of_every_family_stay_on_device(build, name):
    """Backbone and neck, and the heads of segmentors and depth models."""
    model = build(name)
    images_of = [dict(img_shape=(SIDE, SIDE))] * 2
    given = (images_of,) * (task_of(model).compiled == 'encode_decode')
    with fake_cuda(model):
        for mode in True, False:
            model.train(mode)
            for i in some(find_stitched_backbone(model).space.ids):
                set_stitch(model, i)
                run = getattr(model, task_of(model).compiled)
                assert devices(run(images(), *given)) == {CUDA}


def test_decoders_of_llama_stay_on_device(monkeypatch):
    """Texts with padding, as fake tensors have no values to be looked at."""
    pytest.importorskip('transformers')
    module = import_modules_from_strings('snnet_mm.language.hf_decoder_anchor')
    monkeypatch.setattr(module, 'check', lambda *args: None)
    monkeypatch.setattr(torch.Tensor, 'all', lambda _: False)
    anchors = [small('lm', depth, width) for depth, width in ((2, 16), (3, 24))]
    backbone = SNNetv2(anchors, dict(type='LoRAStitchingLayer', rank=2), out='end')
    with fake_cuda(backbone):
        for i in some(backbone.space.ids):
            backbone.set_stitch(i)
            ids = torch.zeros(2, 1, 7, dtype=torch.int64, device=CUDA)
            assert devices(backbone(ids)) == {CUDA}


def test_cost_table_on_gpu_equals_cpu(tiny):
    wanted = cost_table(tiny, (SIDE, SIDE))
    with fake_cuda(tiny):
        assert cost_table(tiny, (SIDE, SIDE)) == wanted


def test_fit_in_turn_narrow_branches_stay_on_device(monkeypatch, unchecked_sums):
    files = {}
    monkeypatch.setattr(torch, 'save', lambda value, file: files.update({file: value}))
    monkeypatch.setattr(torch, 'load', lambda file, **_: files[file])
    vit = small('vit', 16, img_size=SIDE)
    backbone = ElasticBackbone([vit], ['0:1/8 1:0/32', '0:2/0 1:0/0'])
    with fake_cuda(backbone):
        fit_in_turn(backbone, [images()])
        assert {t.device for t in backbone.parameters()} == {CUDA}
        for i in backbone.space.ids:
            backbone.set_stitch(i)
            assert devices(backbone(images())) == {CUDA}
