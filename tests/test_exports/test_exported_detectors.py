"""Detectors as one graph: objects are those of mmdet's inferencer."""

from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import mmdet
import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.registry import MODELS, init_default_scope
from narrowing import AT_MOST, WIDTH, narrow, shrink, write_data
from numpy.testing import assert_allclose, assert_array_equal
from old_torch import writes_onnx
from small import smooth_images
from stock_configs import (
    FROM_8,
    LAST,
    QUERIES,
    STAGES,
    THREE,
    pyramid,
    read_own,
)

from snnet_mm.exports import ExportRequest, StitchExporter
from snnet_mm.exports.comparison import as_tuple
from snnet_mm.exports.description import describe_graphs, describe_input
from snnet_mm.exports.graph import PredictionGraph
from snnet_mm.exports.verification import evaluate
from snnet_mm.inferencers import init_inferencer, predictions_of
from snnet_mm.models import set_stitch
from snnet_mm.runtime import Detections, Panoptic, StitchRuntime
from snnet_mm.runtime.steps import Steps
from snnet_mm.tasks import task_of

pytest.importorskip('cv2')
pytestmark = pytest.mark.ops
RETINA = 'retinanet/retinanet_r50_fpn_1x_coco'
# By mechanism.
DENSE = {
    'rtmdet/rtmdet_tiny_8xb32-300e_coco': THREE,
    RETINA: FROM_8,
    'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco': FROM_8,
    'gfl/gfl_r50_fpn_1x_coco': FROM_8,
    'yolox/yolox_tiny_8xb8-300e_coco': THREE,
}
# Other heads that are accepted, in the slow suite.
MORE = {
    'atss/atss_r50_fpn_1x_coco': FROM_8,
    'yolof/yolof_r50-c5_8xb8-1x_coco': pyramid(32),
    'autoassign/autoassign_r50-caffe_fpn_1x_coco': FROM_8,
    'centernet/centernet-update_r50-caffe_fpn_ms-1x_coco': FROM_8,
    'fsaf/fsaf_r50_fpn_1x_coco': FROM_8,
    'free_anchor/freeanchor_r50_fpn_1x_coco': FROM_8,
    'pisa/retinanet-r50_fpn_pisa_1x_coco': FROM_8,
    'nas_fpn/retinanet_r50_fpn_crop640-50e_coco': FROM_8,
}
DETRS = {
    'detr/detr_r50_8xb2-150e_coco': LAST,
    'dino/dino-4scale_r50_8xb2-12e_coco': QUERIES,
}
if mmdet.__version__ == '3.3.0':  # it encodes positions for a width of 256 alone
    del DETRS['dino/dino-4scale_r50_8xb2-12e_coco']
# Their code has widths of 256.
WIDE = {
    'conditional_detr/conditional-detr_r50_8xb2-50e_coco': LAST
    | dict(neck=dict(in_channels=[WIDTH])),
    'deformable_detr/deformable-detr-refine-twostage_r50_16xb2-50e_coco': dict(
        LAST, neck=dict(QUERIES['neck'], out_channels=256)
    ),
}
MORE_DETRS = WIDE | {
    'deformable_detr/deformable-detr_r50_16xb2-50e_coco': QUERIES,
    'dab_detr/dab-detr_r50_8xb2-50e_coco': LAST,
}
PANOPTIC = 'mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic'
MASKS = {
    'mask2former/mask2former_r50_8xb2-lsj-50e_coco': STAGES,
    PANOPTIC: STAGES,
}
TWO_STAGES = {
    'mask_rcnn/mask-rcnn_r50_fpn_1x_coco': pyramid(4, 8, 16, 32, 64),
    'faster_rcnn/faster-rcnn_r50_fpn_1x_coco': pyramid(4, 8, 16, 32, 64),
}
QUICK = (*DENSE, *DETRS, PANOPTIC, next(iter(TWO_STAGES)))
ALL = DENSE | DETRS | MASKS | TWO_STAGES | MORE | MORE_DETRS
# With the words that refuse them.
REFUSED = {
    'tood/tood_r50_fpn_1x_coco': (FROM_8, 'TOODHead: it selects objects by'),
    'vfnet/vfnet_r50_fpn_1x_coco': (FROM_8, 'VFNetHead: ONNX Runtime has'),
    'solov2/solov2_r50_fpn_1x_coco': (FROM_8, 'SOLOv2 is none'),
    'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco': (
        FROM_8, 'CascadeRoIHead: it or RPNHead'
    ),
    'maskformer/maskformer_r50_ms-16xb1-75e_coco': (STAGES, 'MaskFormerHead: it'),
}  # fmt: skip
GRAPH = 128, 160
SIZES = GRAPH, (96, 100), (200, 180)


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds a narrow detector with weights that matter, and its config."""

    def build(stock):
        parts = ALL | {name: parts for name, (parts, _) in REFUSED.items()}
        cfg = read_own('mmdet', stock, parts[stock], tmp_path / 'own.py')
        if stock in WIDE:
            wide = AT_MOST | dict(embed_dims=256, num_feats=128)
            monkeypatch.setattr('narrowing.WIDTH', 256)
            monkeypatch.setattr('narrowing.AT_MOST', wide)
        narrow(cfg.model)
        shrink(cfg.model.data_preprocessor)
        ratio = stock not in DETRS | MORE_DETRS
        size = (160, 160) if ratio else GRAPH
        resize = dict(type='Resize', scale=size[::-1], keep_ratio=ratio)
        pads = [s for s in cfg.test_dataloader.dataset.pipeline if s['type'] == 'Pad']
        pads = [dict(s, size=size, pad_to_square=False) for s in pads]
        divisor = 160 if ratio and not pads else 1
        cfg.model.data_preprocessor.pad_size_divisor = divisor
        keys = 'img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'
        pack = dict(type='PackDetInputs', meta_keys=keys)
        pipeline = [dict(type='LoadImageFromFile'), resize, *pads, pack]
        cfg.test_dataloader.dataset.pipeline = pipeline
        init_default_scope('mmdet')
        torch.manual_seed(0)
        model = MODELS.build(deepcopy(cfg.model)).eval()  # DETRs write into theirs
        if not ratio:
            model.init_weights()
        for weight in model.parameters():
            if weight.dim() > 1 and weight.std() < 0.05:
                torch.nn.init.normal_(weight, std=0.08)
        names = [f'class {i}' for i in range(133)]
        model.dataset_meta = dict(classes=names, palette='random')
        model.cfg = cfg
        set_stitch(model, 4)
        return cfg, model, size

    return build


def assert_predicts_as_mm(model, predict):
    """Assert that objects or segments of images are those of mmdet."""
    images, seen = [*smooth_images(SIZES)], 0
    arrays = [image[..., ::-1] for image in images]
    expected = predictions_of(init_inferencer(model)(arrays, return_datasamples=True))
    for found, wanted in zip(predict(images), expected, strict=True):
        assert type(found) is type(wanted)
        if isinstance(found, Panoptic):
            assert (found.segments != wanted.segments).mean() < 1e-3
            seen += len(np.unique(found.segments))
            found, wanted = found.objects, wanted.objects
        if found is None or wanted is None:
            assert found is wanted
            continue
        seen += len(found.scores)
        order = np.argsort(-wanted.scores, kind='stable')  # mmdet's masks have none
        wanted = Detections(*(v if v is None else v[order] for v in wanted))
        assert_allclose(found.scores, wanted.scores, rtol=0, atol=1e-5)
        assert_array_equal(found.labels, wanted.labels)
        assert_allclose(found.boxes, wanted.boxes, rtol=0, atol=1e-3)
        if wanted.masks is not None:
            assert (found.masks != wanted.masks).mean() < 1e-4
    assert seen > 10


@torch.no_grad()
@pytest.mark.parametrize('stock', QUICK)
def test_objects_are_those_of_mm(build, stock):
    cfg, model, size = build(stock)
    assert task_of(model).without_heads(model) is None
    graph = PredictionGraph(model, size, cfg.model.data_preprocessor).eval()

    def run(images):
        return [x.numpy() for x in as_tuple(graph(torch.from_numpy(images)))]

    outputs = as_tuple(graph(torch.zeros(1, 3, *size)))
    steps = Steps(describe_graphs(cfg, model, size, outputs))
    assert_predicts_as_mm(model, partial(steps.predict, run))


@writes_onnx
@pytest.mark.slow
@pytest.mark.parametrize('stock', ALL)
def test_a_file_predicts_as_mm(build, stock, tmp_path):
    pytest.importorskip('onnxruntime')
    cfg, model, size = build(stock)
    exporter = StitchExporter(cfg, model, tmp_path / 'out', size)
    manifest = exporter.export_stitch(4, ['onnx'])
    (step,) = manifest['caller']['after']
    assert step['step'] == ('segments' if stock in MASKS else 'instances')
    assert_predicts_as_mm(model, StitchRuntime(tmp_path / 'out').predict_batch)


class Sums(BaseMetric):
    """Sums of what was predicted, in the place of a metric that random boxes fail."""

    default_prefix = 'coco'  # a metric whose direction is known

    def process(self, batch, samples):
        found = [sample['pred_instances'] for sample in samples]
        self.results += [(f['scores'].sum(), f['bboxes'].sum()) for f in found]

    def compute_metrics(self, results):
        scores, boxes = np.sum([[float(v) for v in row] for row in results], 0)
        return dict(bbox_mAP=scores, boxes=boxes)


@torch.no_grad()
@pytest.mark.parametrize('stock', [next(iter(DENSE)), next(iter(MASKS))])
def test_files_are_evaluated_as_the_model(build, stock, tmp_path):
    """In the metric of ``--verify-on`` objects are chosen as in the runtime."""
    cfg, model, size = build(stock)
    write_data(tmp_path)
    dataset = dict(type='CocoDataset', data_root=str(tmp_path), test_mode=True)
    dataset |= dict(ann_file='annotations/instances_val2017.json')
    dataset |= dict(data_prefix=dict(img='val2017/'))
    dataset |= dict(pipeline=cfg.test_dataloader.dataset.pipeline)
    sampler = dict(type='DefaultSampler', shuffle=False)
    cfg.val_dataloader = dict(batch_size=1, sampler=sampler, dataset=dataset)
    cfg.val_evaluator = dict(type=Sums)
    graph = PredictionGraph(model, size, cfg.model.data_preprocessor).eval()
    file = SimpleNamespace(path=tmp_path, open=lambda: graph, format='onnx')
    request = ExportRequest((4,), verify_on='val')
    steps = Steps(describe_input(cfg, model, size))
    wanted = evaluate(cfg, model, [file], steps, request)
    assert wanted['coco/bbox_mAP'] > 0.1
    assert file.verified['metrics'] == pytest.approx(wanted, rel=1e-4)


def with_deformable_neck(model):
    neck = dict(type='DyHead', in_channels=WIDTH, out_channels=WIDTH, num_blocks=1)
    model.neck = torch.nn.Sequential(model.neck, MODELS.build(neck))


def with_round_mean(model):  # a pixel may have this value
    model.data_preprocessor.mean = model.data_preprocessor.mean.round()


def with_settings(head, **settings):
    return lambda model: getattr(model, head).test_cfg.update(settings)


CHANGED = [
    (with_settings('bbox_head', nms=dict(type='soft_nms')), "its NMS is {'type': 's"),
    (with_settings('bbox_head', nms_pre=-1), 'it selects objects by a method that'),
    (with_settings('bbox_head', min_bbox_size=2), 'its min_bbox_size is in pixels'),
    (with_round_mean, 'pixels may look like padding (data_preprocessor)'),
    (with_deformable_neck, 'ONNX Runtime has no deformable convolutions'),
]
CHANGED = [(RETINA, change, f'RetinaHead: {why}') for change, why in CHANGED]
unsure = with_settings('panoptic_fusion_head', object_mask_thr=0.4)
CHANGED += [(PANOPTIC, unsure, 'Mask2FormerHead: its object_mask_thr is under 0.5')]


@pytest.mark.parametrize(
    ('stock', 'change', 'why'),
    [*((stock, str, why) for stock, (_, why) in REFUSED.items()), *CHANGED],
)
def test_other_heads_and_settings_are_refused_by_name(build, stock, change, why):
    model = build(stock)[1]
    change(model)
    assert task_of(model).without_heads(model).startswith(why)
