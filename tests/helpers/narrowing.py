"""Narrows any config, ours or a stock one, to a small model and few small images."""

import numpy as np
import timm
import torch
from labelled_folders import halves, write, write_coco
from mmengine.config import ConfigDict
from mmengine.registry import DATASETS, MODELS
from mmengine.utils import is_seq_of

from snnet_mm.utils import dicts_in

# The width that all stages, necks and heads are narrowed to.
WIDTH, SIDE, SCALE = 32, 64, (160, 112)
IMAGE = 80, 112
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
    num_deconv_filters=WIDTH,
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
    *('train', 'val', 'test', 'training', 'validation'),
    *('train2014', 'test2014'),
)
# COCO's 80 categories have ids up to 90.
NO_CATEGORY = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}


def narrow(model):
    """Limit all widths in a config to ``WIDTH``, and sizes to ``AT_MOST``."""
    for part in dicts_in(model):
        for key, value in [*part.items()]:
            most = WIDTH if str(key).endswith('channels') else AT_MOST.get(key)
            if most and is_seq_of(value, int):
                part[key] = type(value)(min(v, most) for v in value)
            elif most is not None and isinstance(value, (int, float)):
                part[key] = min(value, most)


def without_weights(cfg):
    """Remove ``init_cfg`` from a config, at any depth."""
    for part in dicts_in(cfg):
        part.pop('init_cfg', None)


def shrink(config):
    """Shrink all image sizes in a config."""
    for part in dicts_in(config):
        if 'pad_size_divisor' in part:
            part['pad_size_divisor'] = min(part['pad_size_divisor'], SIDE)
        for key in SIZES & part.keys():
            sizes = part[key] if key == 'scales' else [part[key]]
            large = SCALE if 'scale' in key else SQUARE
            small = [
                SIDE if isinstance(v, int) else large if len({*v}) > 1 else SQUARE
                for v in sizes
            ]
            part[key] = small if key == 'scales' else small[0]


def write_data(root, image=IMAGE):
    """Write small images into every folder that a data set reads."""
    for i in range(2):
        for split in ('train', 'val', 'test'):
            for name in 'ab':
                write(root / split / name / f'{i}.jpg', image)
        for split in ('train', 'test'):
            size = 480, 640  # of which NYUv2's border is cropped
            write(root / f'depth/images/{split}/{i}.jpg', size)
            depth = halves(*size, low=1000, high=4200, dtype=np.uint16)
            write(root / f'depth/annotations/{split}/{i}.png', depth)
        for split in SEGMENTATION_SPLITS:
            write(root / f'images/{split}/{i}.jpg', image)
            suffix = '_labelTrainIds' if split.endswith('2014') else ''
            write(root / f'annotations/{split}/{i}{suffix}.png', halves(*image))
    ids = [i for i in range(1, 91) if i not in NO_CATEGORY]
    classes = DATASETS.get('mmdet.CocoDataset').METAINFO['classes']
    things = [dict(id=i, name=n) for i, n in zip(ids, classes, strict=True)]
    thing = dict(category_id=1, segmentation=[[6, 4, 36, 4, 36, 24]])
    write_coco(root, ('train2017', 'val2017'), 3, categories=things, **thing)


def read_from(cfg, root):
    """Let a config read what :func:`write_data` wrote: two classes for a classifier."""
    model = cfg.model.get('model', cfg.model)
    preprocessors = cfg.get('data_preprocessor'), model.get('data_preprocessor')
    classes = cfg.default_scope == 'mmpretrain'
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
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
        if cfg.test_evaluator.metric == 'proposal_fast':
            # With numpy 1.24, mmdet's own needs equally many boxes in all images.
            cfg.test_evaluator.metric = 'proposal'


def narrow_config(cfg, root, work_dir, iters=2):
    """Narrow the model, shrink the images and shorten the training, nothing else."""
    model = cfg.model.get('model', cfg.model)
    narrow(cfg.model)
    preprocessors = cfg.get('data_preprocessor'), model.get('data_preprocessor')
    of_cfg = 'train_dataloader', 'test_dataloader', 'test_pipeline', 'test_cfg'
    for key in (*of_cfg, 'custom_hooks', 'default_hooks'):
        shrink(cfg.get(key))
    shrink([*preprocessors, model.get('test_cfg')])
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        loader.pin_memory = False
    read_from(cfg, root)
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg['max_iters' if 'max_iters' in cfg.train_cfg else 'max_epochs'] = iters
    cfg.param_scheduler = []  # some begin after the second epoch
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    return cfg


def narrow_own(cfg, root, work_dir):
    """Narrow a config of this repository to one iteration, without weights."""
    model = cfg.model.get('model', cfg.model)
    give_teacher(cfg.model, root, 'regnety_002')
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
    if len({*last}) > 1 and 'head' not in model:
        ends = [i for i, d in enumerate(last) if d != (*last, 0)[i + 1]]
        backbone.out_indices = ends
        read_maps(model, [last[i] for i in ends])


def read_maps(model, widths):
    """Let necks read maps of these widths, and heads unless a neck has its own."""
    readers = _parts(model, 'neck')
    if not any('out_channels' in neck for neck in readers):
        readers += _parts(model, 'decode_head', 'auxiliary_head', 'head')
    for part in (part for part in readers if 'in_channels' in part):
        one = isinstance(part.in_channels, int)
        part.in_channels = widths[part.get('in_index', -1)] if one else widths


def _parts(model, *names):
    found = (model.get(name) or [] for name in names)
    return [p for part in found for p in (part if isinstance(part, list) else [part])]


def give_teacher(model, root, name):
    """Give a distilled classifier of two classes a teacher of random weights."""
    if model.type == 'DistillationWrapper' and model.get('teacher', True):
        file, options = root / f'{name}.pth', dict(name=name, num_classes=2)
        torch.save(timm.create_model(name, num_classes=2).state_dict(), file)
        model.teacher = dict(type='TimmTeacher', pretrained=False, **options)
        model.teacher_checkpoint = str(file)
