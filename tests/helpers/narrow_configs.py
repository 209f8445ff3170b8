"""Narrows any config of this repository to one step of a small model on a CPU."""

import json

import numpy as np
import timm
import torch
from mmengine.config import ConfigDict
from mmengine.registry import MODELS
from PIL import Image
from toy import without_weights

SIDE = 64
DEPTHS = dict(tiny=12, small=12, base=12, large=24)
SEGMENTATION_SPLITS = (
    *('train', 'val', 'training', 'validation'),
    *('train2014', 'test2014'),
)
# COCO's 80 categories have ids up to 90.
NO_CATEGORY = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}


def write_image(path, high=255, channels=3, dtype=np.uint8, height=80, width=112):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width, 3)[: 3 if channels == 3 else 2]
    pixels = np.random.default_rng(0).integers(0, high, shape, dtype=dtype)
    Image.fromarray(pixels).save(path)


def write_data(root, coco_classes):
    """Write two images into every folder that a data set reads."""
    for i in range(2):
        for split in ('train', 'val', 'test'):
            for name in 'ab':
                write_image(root / split / name / f'{i}.jpg')
        for split in ('train', 'test'):
            write_image(root / f'depth/images/{split}/{i}.jpg')
            depth = root / f'depth/annotations/{split}/{i}.png'
            write_image(depth, 9999, channels=1, dtype=np.uint16)
        for split in SEGMENTATION_SPLITS:
            write_image(root / f'images/{split}/{i}.jpg')
            suffix = '_labelTrainIds' if split.endswith('2014') else ''
            labels = root / f'annotations/{split}/{i}{suffix}.png'
            write_image(labels, 6, channels=1)
    polygon = [10, 10, 70, 10, 70, 60, 10, 60]
    thing = dict(category_id=1, bbox=[10, 10, 60, 50], area=3000, iscrowd=0)
    ids = [i for i in range(1, 91) if i not in NO_CATEGORY]
    categories = [dict(id=i, name=n) for i, n in zip(ids, coco_classes, strict=True)]
    for split, number in dict(train=2, val=1).items():
        images, things = [], []
        for i in range(number):
            write_image(root / f'{split}2017' / f'{i}.jpg')
            images.append(dict(id=i, file_name=f'{i}.jpg', height=80, width=112))
            things.append(dict(thing, id=i + 1, image_id=i, segmentation=[polygon]))
        written = dict(images=images, annotations=things, categories=categories)
        path = root / f'annotations/instances_{split}2017.json'
        path.write_text(json.dumps(written))


def narrow_anchor(anchor, width):
    """Narrow one anchor and return the widths of its blocks."""
    anchor.img_size = SIDE
    if anchor.type == 'PlainViT':
        if isinstance(anchor.arch, str):
            depth = DEPTHS[anchor.arch]
            anchor.arch = ConfigDict(embed_dims=width, depth=depth, num_heads=2)
        elif anchor.arch.embed_dims > 256:
            anchor.arch.update(embed_dims=width, num_heads=2)
        if anchor.get('window_size'):
            anchor.window_size = 3
        if anchor.get('lora'):
            anchor.lora.rank = 2
    elif anchor.type == 'TimmAnchor':
        depth = 24 if 'large' in anchor.model else 12
        anchor.model_args = dict(embed_dim=64, depth=depth, num_heads=2)
        anchor.pretrained = False
    elif 'swin' in anchor.model:
        third = 6 if 'kept_blocks' in anchor else 3 if 'tiny' in anchor.model else 4
        depths = (2, 2, third, 2)
        depths = anchor.get('model_args', {}).get('depths', depths)
        heads = (1, 2, 2, 4)[: len(depths)]
        args = dict(embed_dim=8, depths=depths, num_heads=heads, window_size=2)
        anchor.model_args = ConfigDict(args)
    elif 'resnet' in anchor.model:
        args = dict(channels=(4, 6, 8, 10), stem_type='deep', stem_width=2)
        anchor.model_args = ConfigDict(args)
    elif 'convnext' in anchor.model:
        depths = (1, 1, 2, 1) if 'tiny' in anchor.model else (1, 1, 3, 1)
        anchor.model_args = ConfigDict(dims=(width,) * 4, depths=depths)
        if anchor.get('lora'):
            anchor.lora.rank = 2
    elif 'levit' in anchor.model:
        args = dict(embed_dim=(16, 24, 32), depth=(2, 2, 2), num_heads=(2,) * 3)
        anchor.model_args = ConfigDict(args, key_dim=8)
    else:
        anchor.model = 'mobilenetv3_small_050'
    probe = {k: v for k, v in anchor.items() if k != 'out_indices'}
    with torch.device('meta'):
        return MODELS.build(probe).block_dims


def narrow_heads(model, anchors, dims):
    """Narrow necks and heads to the widths of the anchors' blocks."""
    width, last = dims[-1][-1], dims[-1]
    if anchors[-1].type == 'TimmStageAnchor':
        ends = [i for i, d in enumerate(last) if d != (*last, 0)[i + 1]]
        width = [last[i] for i in ends]
        if 'head' not in model:
            model.backbone.out_indices = ends
    heads = model.get('head', {}).get('anchor_heads', ())
    for head, blocks in zip(heads, dims, strict=False):
        if head is not None:
            head.in_channels = blocks[-1]
    necks = model.get('neck') or []
    for neck in necks if isinstance(necks, list) else [necks]:
        neck.in_channels = width
        if 'out_channels' in neck:
            neck.out_channels = 8
    heads = model.get('auxiliary_head', [])
    if isinstance(heads, dict):
        heads.update(in_channels=width[2], channels=8, norm_cfg=dict(type='BN'))
        heads = []
    for head in (*heads, *([model.decode_head] if 'decode_head' in model else [])):
        if 'vit' in head:  # the last blocks of a ViT
            narrow_anchor(head.vit, width)
            head.update(channels=8, num_points=32)
            continue
        if 'pixel_decoder' in head:
            neck.out_channels = head.out_channels
            continue
        channels = width if head.get('num_convs') == 0 else 8
        head.update(in_channels=width, channels=channels, norm_cfg=dict(type='BN'))
        if 'post_process_channels' in head:
            head.post_process_channels = (4, 6, 8, 10)
        for part, blocks in zip(head.get('parts', ()), dims, strict=False):
            part.in_channels = blocks[-1]
    if 'decode_head' in model:
        model.data_preprocessor.size = (SIDE, SIDE)
        if model.test_cfg.mode == 'slide':
            model.test_cfg.update(crop_size=(SIDE, SIDE), stride=(SIDE, SIDE))
    if 'encoder' in model:  # DETRs read the neck's map
        neck.out_channels = model.bbox_head.embed_dims
    elif 'bbox_head' in model:
        model.bbox_head.update(in_channels=width, feat_channels=32)
    if 'roi_head' in model:
        _narrow_detector(model)


def _narrow_detector(model):
    if model.data_preprocessor.pad_size_divisor > SIDE:
        model.data_preprocessor.pad_size_divisor = SIDE
    model.rpn_head.update(in_channels=8, feat_channels=8)
    roi = model.roi_head
    for part in ('bbox', 'mask'):
        roi[f'{part}_roi_extractor'].out_channels = 8
        roi[f'{part}_head'].update(in_channels=8, conv_out_channels=8)
    roi.bbox_head.fc_out_channels = 16
    if 'conv_out_channels' in roi.bbox_head and 'num_shared_convs' not in roi.bbox_head:
        del roi.bbox_head['conv_out_channels']
    model.train_cfg.rcnn.sampler.num = 16
    model.test_cfg.rpn.max_per_img = 30
    model.test_cfg.rcnn.update(score_thr=0.0, max_per_img=5)


def narrow_loader(loader, root, kind):
    loader.update(batch_size=2, num_workers=0, persistent_workers=False)
    loader.pin_memory = False
    dataset = loader.dataset
    if 'num_scenes' in dataset:
        dataset.num_scenes = 2
        return
    depth = 'depth_map_path' in dataset.get('data_prefix', ())
    dataset.data_root = str(root / 'depth' if depth else root)
    if kind == 'head':
        dataset.metainfo = dict(classes=('a', 'b'))
    kinds = [t.type for t in dataset.pipeline]
    square = SIDE if kind == 'head' else (SIDE, SIDE)
    wide = kind != 'head' and (kind == 'decode_head' or 'RandomChoice' in kinds)
    for transform in dataset.pipeline:
        if 'crop_size' in transform:
            transform.crop_size = square
        if transform.type == 'FixedCrop':
            transform.update(rows=(5, 78), cols=(3, 110))
        if 'size' in transform:
            transform.size = square
        if 'scale' in transform:
            transform.scale = (112, 80) if wide else square
        for inner in sum(transform.get('transforms', []), []):
            if 'scales' in inner:
                inner.scales = [(112, 64), (112, 80)]
            if 'crop_size' in inner:
                inner.crop_size = (48, 64)


def narrow_teacher(model, root):
    """Replace the teacher with a small network of random weights."""
    name, file = 'regnety_002', root / 'teacher.pth'
    torch.save(timm.create_model(name, num_classes=2).state_dict(), file)
    model.teacher = dict(type='TimmTeacher', name=name, pretrained=False, num_classes=2)
    model.teacher_checkpoint = str(file)


def narrow(cfg, root, work_dir):
    """Narrow a config to one iteration and return the kind of its head."""
    if cfg.model.type == 'DistillationWrapper':
        narrow_teacher(cfg.model, root)
    without_weights(cfg.model)
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    model = cfg.model.model if cfg.model.type.endswith('Wrapper') else cfg.model
    kinds = 'decode_head', 'roi_head', 'bbox_head', 'head'
    kind = next(k for k in kinds if k in model)
    backbone = model.backbone
    anchors = backbone.get('anchors', [backbone])
    dims = [narrow_anchor(a, w) for a, w in zip(anchors, (8, 12, 16), strict=False)]
    narrow_heads(model, anchors, dims)
    layer = backbone.get('stitching_layer', {})
    if isinstance(layer.get('rank'), int):
        layer.rank = 2
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        narrow_loader(loader, root, kind)
    cfg.test_dataloader.batch_size = cfg.test_dataloader.dataset.indices = 1
    if kind == 'head':
        cfg.test_evaluator.topk = (1,)
        if 'num_scenes' not in cfg.train_dataloader.dataset:
            model.head.num_classes = model.data_preprocessor.num_classes = 2
    elif kind == 'roi_head' and 'ann_file' in cfg.test_evaluator:
        cfg.test_evaluator.ann_file = f'{root}/annotations/instances_val2017.json'
    hooks = cfg.default_hooks
    if 'stitch_init' in hooks:
        hooks.stitch_init.num_images = 2
    if 'stitch_sampling' in hooks:
        if 'input_size' in hooks.stitch_sampling:
            hooks.stitch_sampling.input_size = (SIDE, SIDE)
        if 'sizes' in hooks.stitch_sampling:
            hooks.stitch_sampling.sizes = [(SIDE // 2, SIDE // 2), (SIDE, SIDE)]
        sampler = hooks.stitch_sampling.sampler
        if sampler.type == 'ResourceConstrainedSampler':
            sampler.step = 1e5
        if 'input_size' in cfg.test_cfg:
            cfg.test_cfg.input_size = (SIDE, SIDE)
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg.max_iters, cfg.param_scheduler = 1, []
    return kind
