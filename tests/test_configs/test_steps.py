"""Every config trains a step and tests an image, narrowed to a size for a CPU."""

import re
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner
from mmseg.models import DepthEstimator
from PIL import Image

from snnet_mm.models import StitchedBackbone

CONFIGS = Path(__file__).parents[2] / 'configs'
# Those that are like others but for widths, ranks, weights or kinds of stitches take
# their step where slow tests are run; all are built in test_configs.
VARIANTS = re.compile(
    r'-r\d+_|(?<!-s)-b-l_|deit3-[bl]_|vit-slow|-tws_|_1xb8-500_'
    r'|linear.*dinov2-s-b_|naive.*dinov2-s-b-l'
)
# Detectors take their steps in tests/test_integrations, classifiers, networks with
# stages, bridges and ESTA beside this file.
ALL = sorted(
    p
    for p in CONFIGS.rglob('*.py')
    if not {'_base_', 'bridging', 'esta', 'imagenet', 'swin'} & set(p.parts)
    and not p.name.startswith(('mask-rcnn', 'cls_'))
)
SIDE = 64


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    """Two images in each folder that any of the data sets reads."""
    root = tmp_path_factory.mktemp('data')
    rng = np.random.default_rng(0)
    folders = ('train', 'val', 'training', 'validation', 'train2014', 'test2014')
    for folder in folders:
        coco = '_labelTrainIds' if folder.endswith('2014') else ''
        (root / 'images' / folder).mkdir(parents=True)
        (root / 'annotations' / folder).mkdir(parents=True)
        for i in range(2):
            image = rng.integers(0, 255, (80, 112, 3), dtype=np.uint8)
            labels = rng.integers(0, 6, (80, 112), dtype=np.uint8)
            Image.fromarray(image).save(root / 'images' / folder / f'{i}.jpg')
            Image.fromarray(labels).save(
                root / 'annotations' / folder / f'{i}{coco}.png'
            )
    for folder in ('train', 'test'):
        for kind in ('images', 'annotations'):
            (root / 'depth' / kind / folder).mkdir(parents=True)
        for i in range(2):
            image = rng.integers(0, 255, (80, 112, 3), dtype=np.uint8)
            millimetres = rng.integers(0, 9999, (80, 112), dtype=np.uint16)
            Image.fromarray(image).save(root / f'depth/images/{folder}/{i}.jpg')
            Image.fromarray(millimetres).save(
                root / f'depth/annotations/{folder}/{i}.png'
            )
    return root


def narrow_vit(vit, width):
    if vit.type == 'TimmAnchor':
        depth = 24 if 'large' in vit.model else 12
        vit.model_args = dict(embed_dim=width, depth=depth, num_heads=2)
        vit.update(img_size=SIDE, pretrained=False)
        return
    depth = {'small': 12, 'base': 12, 'large': 24}.get(str(vit.get('arch')))
    depth = depth or vit.arch.depth
    vit.arch = ConfigDict(embed_dims=width, depth=depth, num_heads=2)
    vit.img_size = SIDE
    vit.pop('init_cfg', None)
    if 'lora' in vit:
        vit.lora.rank = 2


def narrow(cfg, data_root, work_dir):
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    backbone = cfg.model.backbone
    if 'anchors' in backbone:
        widths = (8, 12, 16) if len(backbone.anchors) == 3 else (8, 16)
        for width, anchor in zip(widths, backbone.anchors, strict=True):
            narrow_vit(anchor, width)
        if backbone.stitching_layer.type == 'LoRAStitchingLayer':
            backbone.stitching_layer.rank = 2
        hooks = cfg.default_hooks
        hooks.stitch_init.num_images = 2
        if hooks.stitch_sampling.sampler.type == 'ResourceConstrainedSampler':
            hooks.stitch_sampling.sampler = ConfigDict(
                type='ResourceConstrainedSampler', num_groups=3
            )
    else:
        narrow_vit(backbone, 16)
    for head in (cfg.model.decode_head, *cfg.model.get('auxiliary_head', ())):
        channels = 16 if head.get('num_convs') == 0 else 8
        head.update(in_channels=16, channels=channels, norm_cfg=dict(type='BN'))
        head.pop('init_cfg', None)
        if 'post_process_channels' in head:
            head.post_process_channels = (4, 6, 8, 10)
    cfg.model.data_preprocessor.size = (SIDE, SIDE)
    if cfg.model.test_cfg.mode == 'slide':
        cfg.model.test_cfg.update(crop_size=(SIDE, SIDE), stride=(SIDE, SIDE))
    loaders = (cfg.train_dataloader, cfg.test_dataloader)
    for loader in loaders:
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        if 'ToyScenes' in (loader.dataset.type, loader.dataset.get('of')):
            loader.dataset.num_scenes = 2
            continue
        depth = 'depth_map_path' in loader.dataset.data_prefix
        loader.dataset.data_root = str(data_root / 'depth' if depth else data_root)
        for transform in loader.dataset.pipeline:
            if 'crop_size' in transform:
                transform.update(crop_size=(SIDE, SIDE))
            if 'scale' in transform:
                transform.scale = (112, 80)
    cfg.test_dataloader.batch_size = 1
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg.max_iters = 1
    cfg.param_scheduler = []


@pytest.mark.parametrize(
    'path',
    [
        pytest.param(
            path,
            marks=[pytest.mark.slow] if VARIANTS.search(path.name) else [],
            id=str(path.relative_to(CONFIGS)),
        )
        for path in ALL
    ],
)
def test_config_trains_and_tests(path, data_root, tmp_path):
    cfg = Config.fromfile(path)
    narrow(cfg, data_root, tmp_path)
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.named_parameters()}
    runner.train()
    moved = {k for k, v in runner.model.named_parameters() if not v.equal(before[k])}
    is_depth = isinstance(runner.model, DepthEstimator)
    last, metric, worst = (
        ('conv_depth.4', 'RMSE', 80) if is_depth else ('conv_seg', 'mIoU', 100)
    )
    assert f'decode_head.{last}.weight' in moved
    assert any(k.startswith('backbone.') and 'blocks.' in k for k in moved)
    metrics = runner.test()
    stitched = isinstance(runner.model.backbone, StitchedBackbone)
    names = [f'stitch_{i}/{metric}' for i in (0, 1)] if stitched else [metric]
    assert all(0 <= metrics[name] <= worst for name in names)
