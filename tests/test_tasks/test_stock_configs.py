"""Stock configs of the mm packages, with a stitched backbone and nothing else new."""

import copy
import json
import re
from pathlib import Path

import cv2
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from narrowing import narrow_config
from package_calls import infer, infer_ours, predicted
from stock_configs import (
    FROM_8,
    LAST,
    QUERIES,
    STAGES,
    THREE,
    classifier,
    convnexts,
    plain_vits,
    pyramid,
    read_own,
)
from torch.testing import assert_close

from snnet_mm.costs import cost_table
from snnet_mm.exports import StitchExporter
from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.training.config import make_safe

OPS = pytest.mark.ops
SLOW = pytest.mark.slow
PLAIN = dict(backbone=plain_vits(out_indices=(0, 1, 2, 3)))
ONE_STAGE = dict(backbone=convnexts(out_indices=(7,)))
WITH_CLS = dict(backbone=plain_vits(out_indices=(0, 1, 2, 3), with_cls=True))
TWO_HEADS = dict(decode_head=dict(num_heads=2))
GRIDS = dict(num_grids=[8, 8, 6, 5, 4])
STRIDE_16 = dict(anchor_generator=dict(strides=[16]))
FIVE = pyramid(4, 8, 16, 32, 64)
CLS_PLAIN = classifier(plain_vits, pooling='mean')
CLS_STAGES = classifier(convnexts, pooling='mean')
# The stock one knows the blocks of stock backbones alone.
LAYER_DECAY = """
optim_wrapper = dict(
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(_delete_=True, decay_rates=0.9),
)
"""
# The few images of these tests give its pooled maps variances near nothing.
MIXED = "default_hooks['stitch_statistics'].update(num_images=0)"
# What is changed in a stock config.
SEGMENTORS = {
    'upernet/upernet_r50_4xb4-80k_ade20k-512x512': STAGES,
    'vit/vit_deit-s16_mln_upernet_8xb2-160k_ade20k-512x512': PLAIN,
    'segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512': STAGES,
    'deeplabv3plus/deeplabv3plus_r50-d8_4xb4-80k_ade20k-512x512': PLAIN,
    'pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512': PLAIN,
    'segmenter/segmenter_vit-s_mask_8xb1-160k_ade20k-512x512': LAST | TWO_HEADS,
    'dpt/dpt_vit-b16_8xb2-160k_ade20k-512x512': WITH_CLS,
    'knet/knet-s3_r50-d8_upernet_8xb2-adamw-80k_ade20k-512x512': PLAIN,
    'beit/beit-base_upernet_8xb2-160k_ade20k-640x640': PLAIN,
    'fcn/fcn_r50-d8_4xb4-80k_ade20k-512x512': PLAIN,
    'setr/setr_vit-l_pup_8xb2-160k_ade20k-512x512': PLAIN,
    'segnext/segnext_mscan-t_1xb16-adamw-160k_ade20k-512x512': STAGES,
    'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512': STAGES,
    'mask2former/mask2former_r50_8xb2-160k_ade20k-512x512': STAGES,
    'maskformer/maskformer_r50-d32_8xb2-160k_ade20k-512x512': STAGES,
    'point_rend/pointrend_r50_4xb4-160k_ade20k-512x512': STAGES,
}
DETECTORS = {
    'faster_rcnn/faster-rcnn_r50_fpn_1x_coco': FIVE,
    'retinanet/retinanet_r50_fpn_1x_coco': FROM_8,
    'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco': FROM_8,
    'yolof/yolof_r50-c5_8xb8-1x_coco': LAST | dict(bbox_head=STRIDE_16),
    'solov2/solov2_r50_fpn_1x_coco': FIVE | dict(mask_head=GRIDS),
    'detr/detr_r50_8xb2-150e_coco': LAST,
    'deformable_detr/deformable-detr_r50_16xb2-50e_coco': QUERIES,
    'dino/dino-4scale_r50_8xb2-12e_coco': QUERIES,
    'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco': FIVE,
    'mask2former/mask2former_r50_8xb2-lsj-50e_coco': STAGES,
    'rtmdet/rtmdet_tiny_8xb32-300e_coco': THREE,
    'rtmdet/rtmdet-ins_tiny_8xb32-300e_coco': THREE,
    'mask_rcnn/mask-rcnn_r50_fpn_1x_coco': STAGES,
    'rpn/rpn_r50_fpn_1x_coco': FIVE,
}
CLASSIFIERS = {
    'resnet/resnet50_8xb32_in1k': CLS_STAGES,
    'resnet/resnet18_8xb32_in1k': ONE_STAGE,
    'deit/deit-small_4xb256_in1k': classifier(plain_vits),
    'mae/benchmarks/vit-base-p16_8xb128-coslr-100e_in1k': CLS_PLAIN,
    'swin_transformer/swin-tiny_16xb64_in1k': CLS_STAGES,
    'convnext/convnext-tiny_32xb128_in1k': CLS_STAGES,
}
# What the default suite runs, as tests are named.
FAST = {'mmseg-upernet', 'mmpretrain-deit-small'}
WITH_OPS = 'mmdet', 'mmseg-mask', 'mmseg-point'


def cases():
    groups = dict(mmseg=SEGMENTORS, mmdet=DETECTORS, mmpretrain=CLASSIFIERS)
    for package, configs in groups.items():
        for stock, model in configs.items():
            name = f'{package}-{stock.rpartition("/")[2].partition("_")[0]}'
            marks = [OPS] * name.startswith(WITH_OPS) + [SLOW] * (name not in FAST)
            yield pytest.param(package, stock, model, marks=marks, id=name)


@pytest.mark.parametrize('package, stock, model', [*cases()])
def test_stock_config_trains_tests_counts_and_exports(
    package, stock, model, data, tmp_path
):
    extra = dict(beit=LAYER_DECAY, knet=MIXED).get(stock.partition('/')[0], '')
    cfg = read_own(package, stock, model, tmp_path / 'own.py', extra=extra)
    cfg = narrow_config(cfg, data, tmp_path)
    stitches = cfg.test_cfg.stitches
    trained = copy.deepcopy(cfg)
    make_safe(trained)  # as tools/train.py does
    runner = Runner.from_cfg(trained)
    new = {k: v.clone() for k, v in runner.model.backbone.named_parameters()}
    runner.train()
    assert runner.iter >= 2
    assert any(not v.equal(new[k]) for k, v in runner.model.backbone.named_parameters())
    metrics = runner.test()
    assert {name.split('/')[0] for name in metrics} == {f'stitch_{i}' for i in stitches}
    (written,) = tmp_path.glob('*/stitches.json')
    results = json.loads(written.read_text())
    size = tuple(results['input_size'])
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    costs = cost_table(runner.model, size)
    assert {r['id']: r['flops'] for r in results['stitches']} == {
        i: costs[i].flops for i in stitches
    }
    assert costs.scope is results.get('scope') is None
    assert costs[0].flops < costs[4].flops < costs[1].flops
    for name, value in runner.model.state_dict().items():
        assert torch.equal(value, before[name]), name

    checkpoint = (tmp_path / 'last_checkpoint').read_text()
    model = init_model(cfg, checkpoint, device='cpu')
    StitchExporter(cfg, model, tmp_path).export_stitch(stitches[-1])
    alone = [str(tmp_path / f'stitch_{stitches[-1]}{s}') for s in ('.py', '.pth')]
    set_stitch(model, stitches[-1])
    image = str(data / 'images/validation/0.jpg')
    found = predicted(infer(package, *alone, cv2.imread(image)))
    for key, value in predicted(infer_ours(model, image)).items():
        atol = 1e-5 * max(1, value.abs().max().item())  # as exports are compared
        assert_close(found[key], value, rtol=1e-5, atol=atol, msg=key)


def test_vitdet_page_levels_cover_the_image(tmp_path):
    """Its levels cover the image, where the detector makes boxes for them."""
    page = Path(__file__).parents[2] / 'configs' / 'vitdet' / 'README.md'
    (text,) = re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL)
    (tmp_path / 'own.py').write_text(text)
    cfg = Config.fromfile(tmp_path / 'own.py')
    sizes = zip((16, 32), (2, 4), ((1,), (1, 3)), strict=True)
    anchors = zip(cfg.model.backbone.anchors, sizes, strict=True)
    for anchor, (width, depth, global_blocks) in anchors:
        anchor.arch = ConfigDict(embed_dims=width, depth=depth, num_heads=2)
        anchor.update(img_size=128, window_size=2, global_blocks=global_blocks)
    cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=4)
    cfg.model.neck.in_channels = 32
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    image = torch.zeros(3, 120, 250, dtype=torch.uint8)
    images = model.data_preprocessor(dict(inputs=[image]))['inputs']
    strides = model.bbox_head.prior_generator.strides
    for stitch_id in (0, 1, 2):
        set_stitch(model, stitch_id)
        maps = model.extract_feat(images)
        sides = [
            (m.shape[-2] * y, m.shape[-1] * x)
            for m, (x, y) in zip(maps, strides, strict=True)
        ]
        assert sides == [(128, 256)] * 5 == [images.shape[-2:]] * 5
