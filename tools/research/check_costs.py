"""Compare our FLOPs of stock configs with torch's count of a prediction on a CPU.

``tools/research/check_costs.py [NAME ...]`` builds configs shipped with mmdet and mmseg
without weights and counts them like an anchor alone. Torch's own counter then counts
the prediction of one noise image. To reach the maximum cost, score thresholds are 0 and
NMS drops no boxes. Deformable convolutions, which torch's counter misses, are added.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.utils import ToolParser, run_command

if TYPE_CHECKING:
    import torch
    from torch import nn

CONFIGS = dict(
    mmdet="""
        detr/detr_r50_8xb2-150e_coco
        conditional_detr/conditional-detr_r50_8xb2-50e_coco
        dab_detr/dab-detr_r50_8xb2-50e_coco
        deformable_detr/deformable-detr_r50_16xb2-50e_coco
        deformable_detr/deformable-detr-refine-twostage_r50_16xb2-50e_coco
        dino/dino-4scale_r50_8xb2-12e_coco
        ddq/ddq-detr-4scale_r50_8xb2-12e_coco
        mask2former/mask2former_r50_8xb2-lsj-50e_coco
        mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic
        maskformer/maskformer_r50_ms-16xb1-75e_coco
        cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco
        cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco
        htc/htc_r50_fpn_1x_coco
        point_rend/point-rend_r50-caffe_fpn_ms-1x_coco
        faster_rcnn/faster-rcnn_r50_fpn_1x_coco
        mask_rcnn/mask-rcnn_r50_fpn_1x_coco
        ms_rcnn/ms-rcnn_r50-caffe_fpn_1x_coco
        double_heads/dh-faster-rcnn_r50_fpn_1x_coco
        grid_rcnn/grid-rcnn_r50_fpn_gn-head_1x_coco
        scnet/scnet_r50_fpn_1x_coco
        sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco
        queryinst/queryinst_r50_fpn_1x_coco
        cascade_rpn/cascade-rpn_faster-rcnn_r50-caffe_fpn_1x_coco
        guided_anchoring/ga-faster-rcnn_r50-caffe_fpn_1x_coco
        panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco
        crowddet/crowddet-rcnn_r50_fpn_8xb2-30e_crowdhuman
        retinanet/retinanet_r50_fpn_1x_coco
        fcos/fcos_r50-caffe_fpn_gn-head_1x_coco
        atss/atss_r50_fpn_1x_coco
        gfl/gfl_r50_fpn_1x_coco
        vfnet/vfnet_r50_fpn_1x_coco
        tood/tood_r50_fpn_1x_coco
        paa/paa_r50_fpn_1x_coco
        yolof/yolof_r50-c5_8xb8-1x_coco
        yolox/yolox_s_8xb8-300e_coco
        yolo/yolov3_d53_8xb8-320-273e_coco
        centernet/centernet-update_r50-caffe_fpn_ms-1x_coco
        rtmdet/rtmdet_tiny_8xb32-300e_coco
        rtmdet/rtmdet-ins_tiny_8xb32-300e_coco
        condinst/condinst_r50_fpn_ms-poly-90k_coco_instance
        boxinst/boxinst_r50_fpn_ms-90k_coco
        yolact/yolact_r50_1xb8-55e_coco
        solo/solo_r50_fpn_1x_coco
        solov2/solov2_r50_fpn_1x_coco
        fast_rcnn/fast-rcnn_r50_fpn_1x_coco
    """,
    mmseg="""
        mask2former/mask2former_r50_8xb2-160k_ade20k-512x512
        maskformer/maskformer_r50-d32_8xb2-160k_ade20k-512x512
        point_rend/pointrend_r50_4xb4-160k_ade20k-512x512
        knet/knet-s3_r50-d8_fcn_8xb2-adamw-80k_ade20k-512x512
        segmenter/segmenter_vit-s_mask_8xb1-160k_ade20k-512x512
    """,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('names', nargs='*', help='parts of names of configs (default: all)')
    add('--side', default=256, type=int, help='of the square image, in pixels')
    return parser.parse_args()


def configs(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield package and name of every config that matches a name."""
    for package, listed in CONFIGS.items():
        for stock in listed.split():
            if not names or any(name in f'{package}/{stock}' for name in names):
                yield package, stock


def build(package: str, stock: str) -> nn.Module:
    """Build the model of a config without weights; all boxes will be kept."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    from snnet_mm.tasks import import_parts_for
    from snnet_mm.utils import dicts_in

    folder = Path(find_spec(package).origin).parent / '.mim' / 'configs'
    cfg = Config.fromfile(folder / f'{stock}.py')
    for settings in dicts_in(cfg.model.get('test_cfg') or {}):
        kept = dict(score_thr=0.0, iou_threshold=1.0, iou_thr=1.0)
        settings.update({k: v for k, v in kept.items() if k in settings})
    cfg.model.pop('pretrained', None)
    cfg.model.backbone.pop('init_cfg', None)
    import_parts_for(cfg)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    model.init_weights()  # otherwise query boxes have negative sizes
    return model.requires_grad_(False).eval()


def flops_of_prediction(model: nn.Module, side: int) -> int:
    """Return the multiply-accumulates of predicting one noise image."""
    import torch
    from mmengine.structures import BaseDataElement
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from snnet_mm.tasks.two_stage import most_boxes

    sizes = ('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape')
    metas = dict.fromkeys(sizes, (side, side)) | dict(scale_factor=(1.0, 1.0))
    metas |= dict(img_padding_size=(0, 0, 0, 0))
    torch.backends.mha.set_fastpath_enabled(False)
    with (
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
        deformable(model) as unseen,
        ExitStack() as stack,
    ):
        image, sample = torch.randn(1, 3, side, side), BaseDataElement(metainfo=metas)
        if type(model).__name__ == 'QueryInst':  # pasting its masks may fail
            stack.enter_context(most_boxes(model, image))
        model(image, [sample], mode='predict')
    return counter.get_total_flops() // 2 + sum(unseen)


@contextmanager
def deformable(model: nn.Module) -> Iterator[list[int]]:
    """Yield a list that collects the MACs of all deformable convolutions that run."""
    found: list[int] = []

    def add(conv: nn.Module, _, output: torch.Tensor) -> None:
        found.append(output.numel() * conv.weight[0].numel())

    convs = (m for m in model.modules() if 'DeformConv2d' in type(m).__name__)
    handles = [conv.register_forward_hook(add) for conv in convs]
    yield found
    for handle in handles:
        handle.remove()


def main() -> None:
    args = parse_args()
    from mmengine.logging import MMLogger

    from snnet_mm.costs import whole_model_cost

    MMLogger.get_instance('costs', log_level='WARNING')
    print('| config | counted (G) | prediction (G) | difference | of | s |')
    print('|---|---|---|---|---|---|')
    for package, stock in configs(args.names):
        model = build(package, stock)
        start = time.process_time()
        cost, scope = whole_model_cost(model, (args.side,) * 2)
        seconds = time.process_time() - start
        try:
            found = flops_of_prediction(model, args.side)
        except Exception as error:  # the table shows which configs fail
            words = f'not run: {type(error).__name__}: {error}'.partition('\n')[0]
        else:
            words = f'{found / 1e9:.4f} | {cost.flops / found - 1:+.2%}'
        row = f'{cost.flops / 1e9:.4f} | {words} | {scope or "all"} | {seconds:.1f}'
        print(f'| {package} {stock.partition("/")[2]} | {row} |', flush=True)


if __name__ == '__main__':
    run_command(main)
