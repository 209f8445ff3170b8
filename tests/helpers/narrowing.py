"""Narrows any config, ours or a stock one, to a small model and few small images."""

import json

import numpy as np
import timm
import torch
from mmengine.config import ConfigDict
from mmengine.registry import DATASETS, MODELS
from mmengine.utils import is_seq_of
from PIL import Image
from toy import without_weights

# The width that all stages, necks and heads are narrowed to.
WIDTH, SIDE, IMAGE = 32, 64, (160, 112)
SQUARE = SIDE, SIDE
AT_MOST = dict(
    embed_dim=WIDTH,
    embed_dims=WIDTH,
    num_feats=WIDTH // 2,
    num_layers=2,
    stacked_convs=1,
    num_queries=40,
    num_proposals=20,
    proposal_feature_channel=WIDTH,
    num_points=64,
    num=16,  # sampled boxes
    rank=2,
    max_per_img=30,
    max_per_image=30,
    score_thr=0,
    mask_thr=0,
    filter_thr=0,
)
SIZES = {
    'crop_size', 'size', 'stride', 'input_size', 'scale', 'img_scale', 'scales',
}  # fmt: skip
# Depths of the architectures of PlainViT.
DEPTHS = dict(tiny=12, small=12, base=12, large=24)
SEGMENTATION_SPLITS = (
    *('train', 'val', 'training', 'validation'),
    *('train2014', 'test2014'),
)
# COCO's 80 categories have ids up to 90.
NO_CATEGORY = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}


def narrow(model):
    """Limit all widths in a config to ``WIDTH``, and sizes to ``AT_MOST``."""
    for key, value in _items(model):
        most = WIDTH if str(key).endswith('channels') else AT_MOST.get(key)
        if most and is_seq_of(value, int):
            model[key] = type(value)(min(v, most) for v in value)
        elif most is not None and isinstance(value, (int, float)):
            model[key] = min(value, most)
        else:
            narrow(value)


def shrink(config):
    """Shrink all image sizes in a config."""
    for key, value in _items(config):
        if key == 'pad_size_divisor':
            config[key] = min(value, SIDE)
        if key not in SIZES:
            shrink(value)
            continue
        sizes = value if key == 'scales' else [value]
        wide = 'scale' in key
        small = [
            SIDE if isinstance(v, int) else IMAGE if wide and len({*v}) > 1 else SQUARE
            for v in sizes
        ]
        config[key] = small if key == 'scales' else small[0]


def _items(config):
    if isinstance(config, dict):
        return list(config.items())
    return enumerate(config) if isinstance(config, (list, tuple)) else ()


def write_image(path, high=255, channels=3, dtype=np.uint8, height=80, width=112):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width, 3)[: 3 if channels == 3 else 2]
    pixels = np.random.default_rng(0).integers(0, high, shape, dtype=dtype)
    Image.fromarray(pixels).save(path)


def write_data(root):
    """Write two images into every folder that a data set reads."""
    for i in range(2):
        for split in ('train', 'val', 'test'):
            for name in 'ab':
                write_image(root / split / name / f'{i}.jpg')
        for split in ('train', 'test'):
            size = dict(height=480, width=640)  # of which NYUv2's border is cropped
            write_image(root / f'depth/images/{split}/{i}.jpg', **size)
            depth = root / f'depth/annotations/{split}/{i}.png'
            write_image(depth, 9999, channels=1, dtype=np.uint16, **size)
        for split in SEGMENTATION_SPLITS:
            write_image(root / f'images/{split}/{i}.jpg')
            suffix = '_labelTrainIds' if split.endswith('2014') else ''
            labels = root / f'annotations/{split}/{i}{suffix}.png'
            write_image(labels, 6, channels=1)
    polygon = [10, 10, 70, 10, 70, 60, 10, 60]
    thing = dict(category_id=1, bbox=[10, 10, 60, 50], area=3000, iscrowd=0)
    ids = [i for i in range(1, 91) if i not in NO_CATEGORY]
    names = DATASETS.get('mmdet.CocoDataset').METAINFO['classes']
    categories = [dict(id=i, name=n) for i, n in zip(ids, names, strict=True)]
    for split, number in dict(train=2, val=1).items():
        images, things = [], []
        for i in range(number):
            write_image(root / f'{split}2017' / f'{i}.jpg')
            images.append(dict(id=i, file_name=f'{i}.jpg', height=80, width=112))
            things.append(dict(thing, id=i + 1, image_id=i, segmentation=[polygon]))
        written = dict(images=images, annotations=things, categories=categories)
        path = root / f'annotations/instances_{split}2017.json'
        path.write_text(json.dumps(written))


def narrow_config(cfg, root, work_dir, iters=2):
    """Narrow the model, shrink the images and shorten the training, nothing else."""
    model = cfg.model.get('model', cfg.model)
    narrow(cfg.model)
    preprocessors = cfg.get('data_preprocessor'), model.get('data_preprocessor')
    of_cfg = 'train_dataloader', 'test_dataloader', 'test_pipeline', 'test_cfg'
    for key in (*of_cfg, 'custom_hooks', 'default_hooks'):
        shrink(cfg.get(key))
    shrink([*preprocessors, model.get('test_cfg')])
    classes = cfg.default_scope == 'mmpretrain'
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        loader.pin_memory = False
        dataset = loader.dataset.get('dataset', loader.dataset)
        if 'num_scenes' in dataset:
            dataset.num_scenes, classes = 2, False
            continue
        depth = 'depth_map_path' in dataset.get('data_prefix', ())
        dataset.data_root = str(root / 'depth' if depth else root)
        if classes:
            dataset.metainfo = dict(classes=('a', 'b'))
    if classes:
        for part in filter(None, (*preprocessors, model.head)):
            part.num_classes = 2
    if cfg.default_scope == 'mmpretrain':
        cfg.test_evaluator.topk = (1,)
    elif 'ann_file' in cfg.test_evaluator:
        cfg.test_evaluator.ann_file = f'{root}/annotations/instances_val2017.json'
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg['max_iters' if 'max_iters' in cfg.train_cfg else 'max_epochs'] = iters
    cfg.param_scheduler = []  # some begin after the second epoch
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    return cfg


def narrow_own(cfg, root, work_dir):
    """Narrow a config of this repository to one iteration, without weights."""
    model = cfg.model.get('model', cfg.model)
    if cfg.model.type == 'DistillationWrapper' and cfg.model.get('teacher', True):
        _narrow_teacher(cfg.model, root)
    without_weights(cfg.model)
    narrow_config(cfg, root, work_dir, iters=1)
    backbone = model.backbone
    anchors = backbone.get('anchors', [backbone])
    widths = (8, 16, WIDTH)[-len(anchors) :]
    if backbone.type == 'BridgedBackbone':
        widths = (64, 64)  # blocks of adapters have heads of 64 channels
    dims = [_narrow_anchor(a, w) for a, w in zip(anchors, widths, strict=True)]
    if vit := model.get('decode_head', {}).get('vit'):  # the last blocks of a ViT
        _narrow_anchor(vit, WIDTH)
    _read_maps_of(model, dims)
    cfg.test_dataloader.batch_size = cfg.test_dataloader.dataset.indices = 1
    hooks = cfg.default_hooks
    if 'stitch_init' in hooks:
        hooks.stitch_init.num_images = 2
    if 'step' in hooks.get('stitch_sampling', {}).get('sampler', {}):
        hooks.stitch_sampling.sampler.step = 1e4
    return cfg


def _narrow_anchor(anchor, width):
    """Narrow one anchor, as deep as it is, and return the widths of its blocks."""
    anchor.img_size = SIDE
    if anchor.type == 'PlainViT':
        arch, wide = anchor.arch, isinstance(anchor.arch, str)
        depth, most = (DEPTHS[arch], width) if wide else (arch.depth, arch.embed_dims)
        width = min(width, most)
        anchor.arch = ConfigDict(embed_dims=width, depth=depth, num_heads=2)
        if anchor.get('window_size'):
            anchor.window_size = 3
    elif anchor.type == 'TimmAnchor':
        depth = 24 if 'large' in anchor.model else 12
        anchor.model_args = ConfigDict(embed_dim=width, depth=depth, num_heads=2)
        anchor.pretrained = False
    elif 'mobilenet' in anchor.model:
        anchor.model = 'mobilenetv3_small_050'
    else:
        anchor.model_args = ConfigDict(_narrow_stages(anchor, width))
    probe = {k: v for k, v in anchor.items() if k != 'out_indices'}
    with torch.device('meta'):
        return MODELS.build(probe).block_dims


def _narrow_stages(anchor, width):
    """Return arguments of a narrow network of timm with stages."""
    tiny = 'tiny' in anchor.model
    if 'swin' in anchor.model:
        third = 6 if 'kept_blocks' in anchor else 3 if tiny else 4
        depths = anchor.get('model_args', {}).get('depths', (2, 2, third, 2))
        heads = (1, 2, 2, 4)[: len(depths)]
        return dict(embed_dim=8, depths=depths, num_heads=heads, window_size=2)
    if 'resnet' in anchor.model:
        return dict(channels=(4, 6, 8, 10), stem_type='deep', stem_width=2)
    if 'convnext' in anchor.model:
        return dict(dims=(width,) * 4, depths=(1, 1, 2 if tiny else 3, 1))
    assert 'levit' in anchor.model
    return dict(embed_dim=(16, 24, 32), depth=(2,) * 3, num_heads=(2,) * 3, key_dim=8)


def _read_maps_of(model, dims):
    """Let necks and heads read the widths of the anchors' blocks."""
    heads = model.get('head', {}).get('anchor_heads', ())
    heads = heads or model.get('decode_head', {}).get('parts', ())
    for head, blocks in zip(heads, dims, strict=False):
        if head is not None:
            head.in_channels = blocks[-1]
    backbone, last = model.backbone, dims[-1]
    staged = len({*last}) > 1 and 'head' not in model
    if not staged:
        return
    ends = [i for i, d in enumerate(last) if d != (*last, 0)[i + 1]]
    backbone.out_indices, widths = ends, [last[i] for i in ends]
    necks = model.get('neck', [])
    readers = [*(necks if isinstance(necks, list) else [necks])]
    readers += [model[k] for k in ('decode_head', 'auxiliary_head') if k in model]
    for part in readers:
        one = isinstance(part.in_channels, int)
        part.in_channels = widths[part.in_index] if one else widths


def _narrow_teacher(model, root):
    """Replace the teacher with a small network of random weights."""
    name, file = 'regnety_002', root / 'teacher.pth'
    torch.save(timm.create_model(name, num_classes=2).state_dict(), file)
    model.teacher = dict(type='TimmTeacher', name=name, pretrained=False, num_classes=2)
    model.teacher_checkpoint = str(file)
