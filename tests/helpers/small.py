"""Small models: their configs, weights and images, for tests of every part."""

from copy import deepcopy
from functools import cache, partial
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.utils import import_modules_from_strings
from narrowing import WIDTH, narrow, without_weights
from torch import nn

from snnet_mm.models.init_model import init_model

CONFIGS = Path(__file__).parents[2] / 'configs'
TASKS = dict(
    seg='setr-naive_{}_1xb16-300',
    depth='dpt_{}_1xb16-300',
    det='mask-rcnn_{}_1xb8-300',
    cls='cls_{}_1xb16-600',
)
# Query-based heads, and the task whose data and network they use.
OF_QUERIES = dict(dino='det', mask2former='seg', eomt='seg')
# Widths and depths of anchors, and sizes of images.
SHORT = ((8, 2), (12, 3))
SIZES = ((64, 64), (50, 90), (130, 71))
DEPTH = 4  # of the network of write_trained
WORDS = 50  # that small language models know


def toy(task, model='snnetv2-fast-slow'):
    """Return the path of a toy config, by default of the stitched model."""
    name = f'{TASKS[task].format(model)}_toy-scenes-64x64.py'
    return str(CONFIGS / 'toy' / name)


def small(kind, *args, **changes):
    """Return a small config of a kind, without pretrained weights.

    Of models: ``seg``, ``depth``, ``det`` and ``cls`` (stitched), ``network`` (not
    stitched), ``narrow`` and ``tiny`` (stitched segmentors). Of anchors: ``vit`` and
    ``lm``. Changes are the arguments of the function of that name.
    """
    makers = dict(vit=_vit, lm=_lm, network=_network, narrow=_narrow, tiny=_tiny)
    return makers.get(kind, partial(_stitched, kind))(*args, **changes)


def _vit(width=8, depth=2, **settings):
    """A plain ViT with heads of half its width."""
    arch = dict(embed_dims=width, depth=depth, num_heads=2)
    return dict(type='PlainViT', img_size=32, patch_size=8, arch=arch) | settings


def _lm(depth=2, width=16, tied=False, settings=None, **kwargs):
    """A decoder of transformers with heads of 4 channels and 32 positions."""
    model = dict(
        model_type='llama',
        vocab_size=WORDS,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 4,
        num_key_value_heads=width // 8,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
    )
    return dict(type='HFDecoderAnchor', model=model | (settings or {}), **kwargs)


_read = cache(Config.fromfile)


def _network(task='seg', model='vit-fast'):
    """A toy config of few images."""
    cfg = deepcopy(_read(toy(task, model)))
    without_weights(cfg.model)
    cfg.log_level, cfg.param_scheduler = 'ERROR', []
    for name in ('train', 'val', 'test'):
        loader = cfg[f'{name}_dataloader']
        loader.update(batch_size=2)
        loader.dataset.num_scenes = 20 if name == 'train' else 4
    return cfg


def _stitched(task, work_dir='unused'):
    """The stitched toy config of a task: two steps, and no validation."""
    cfg = _network(task, 'snnetv2-fast-slow')
    cfg.work_dir = str(work_dir)
    cfg.default_hooks.stitch_statistics.num_images = 4
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.train_cfg.max_iters, cfg.default_hooks.checkpoint.interval = 2, 1
    return cfg


def _narrow(anchor=None, sizes=((8, 3), (12, 5)), **backbone):
    """A segmentor of anchors of some widths and depths; its head is one convolution."""
    cfg = _network('seg', 'snnetv2-fast-slow')
    anchors = cfg.model.backbone.anchors
    anchors += [deepcopy(anchors[0]) for _ in sizes[len(anchors) :]]
    for settings, size in zip(anchors, sizes, strict=True):
        settings.arch = _vit(*size)['arch']
        settings.update(anchor or {})
    cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=2)
    cfg.model.backbone.update(backbone)
    if cfg.model.backbone.type == 'SNNetv1':
        cfg.model.backbone.pop('stitching_layer')
    one_conv = dict(num_convs=1, kernel_size=1, up_scale=4, channels=8)
    cfg.model.decode_head.update(in_channels=sizes[-1][0], **one_conv)
    return cfg


def _tiny(work_dir=None, val=True):
    """A segmentor of four stitches that trains an iteration.

    Without validation and statistics, which take half of the time of a short run, if
    ``val`` is False.
    """
    layer = dict(type='LoRAStitchingLayer', rank=4)
    backbone = dict(out_indices=[0, 1, 2, 3], stitching_layer=layer)
    cfg = _narrow(dict(img_size=32), ((8, 2), (12, 4)), **backbone)
    cfg.model.data_preprocessor.size = [32, 32]
    cfg.default_hooks.stitch_statistics.num_images = 4
    cfg.default_hooks.stitch_init.num_images = 2
    cfg.default_hooks.stitch_sampling.sampler.step = 1e4
    for name in ('train', 'val', 'test'):
        cfg[f'{name}_dataloader'].dataset.update(size=[32, 32], num_scenes=4)
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.default_hooks.checkpoint.interval = 1
    cfg.default_hooks.pop('visualization')  # which only warns that it is off
    if work_dir:
        cfg.work_dir = str(work_dir)
    if not val:
        cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
        del cfg.default_hooks['stitch_statistics']
    return cfg


@torch.no_grad()
def write_trained(task, folder):
    """Write config and checkpoint of four blocks whose weights affect the output."""
    cfg = _network(base := OF_QUERIES.get(task, task))
    if base == 'seg':
        cfg.model.backbone.arch.embed_dims = WIDTH
        cfg.model.decode_head.update(in_channels=WIDTH, num_convs=1)
    if task in OF_QUERIES:
        _give_queries(cfg, task)
    model = init_model(cfg, None, device='cpu')
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'rpn' not in name:
            parameter.normal_(std=0.2)
    files = folder / 'network.py', folder / 'network.pth'
    cfg.dump(files[0])
    meta = dict(dataset_meta=model.dataset_meta)
    torch.save(dict(meta=meta, state_dict=model.state_dict()), files[1])
    return files


def _give_queries(cfg, kind):
    """Give a narrow query-based head to the network of a toy config."""
    file = '_base_/models/{}_vit.py'.format('dino' if kind == 'dino' else 'mask2former')
    model = Config.fromfile(CONFIGS / file).model
    backbone, preprocessor = cfg.model.backbone, cfg.model.data_preprocessor
    model.update(backbone=backbone, data_preprocessor=preprocessor)
    model.neck.update(in_channels=WIDTH, in_stride=8)
    if kind == 'eomt':
        vit = dict(backbone, arch=dict(backbone.arch, depth=2), final_norm=True)
        head = dict(type='EoMTSegHead', vit=vit, channels=8, num_queries=20)
        del model.neck
        model.decode_head = dict(head, num_classes=5)
    elif kind == 'dino':
        model.bbox_head.num_classes = 1
        cfg.test_evaluator.metric = 'bbox'
    else:
        model.decode_head.update(num_classes=5)
        model.decode_head.loss_cls.class_weight = [1.0] * 5 + [0.1]
    if kind != 'dino':
        parts = ['snnet_mm', 'snnet_mm.tasks.mmseg.eomt']
        import_modules_from_strings(parts)  # as reading the written config does
        cfg.custom_imports = dict(imports=parts, allow_failed_imports=False)
    without_weights(model)
    narrow(model)
    cfg.model = model


@MODELS.register_module()
class ToyClassifier(BaseModel):
    """A classifier of the last map of a backbone, or of the images themselves."""

    def __init__(self, backbone=None, channels=12, num_classes=5, dropout=0, **kwargs):
        super().__init__(**kwargs)
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(channels, num_classes), nn.Dropout(dropout))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        maps = self.backbone(inputs)[-1] if self.backbone else inputs
        logits = self.head(maps.mean((2, 3)))
        if mode == 'loss':
            right = (logits.argmax(1) == data_samples).float().mean()
            return dict(loss_cls=F.cross_entropy(logits, data_samples), accuracy=right)
        return logits.argmax(1) if mode == 'predict' else logits


@torch.no_grad()
def balance(model, size=64):
    """Make each class of a segmentor as likely as another, on noise."""
    noise = torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0))
    head = model.decode_head
    head.conv_seg.bias -= head(model.backbone(noise)).mean((0, 2, 3))
    return model


def build_disturbed(cfg):
    """Build the model of a config, the same on every call; see :func:`disturb`."""
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    return disturb(MODELS.build(cfg.model))


@torch.no_grad()
def disturb(model, std=0.3):
    """Draw weights and statistics large enough for all parts to affect the output."""
    for parameter in model.parameters():
        parameter.normal_(std=std)
    for name, buffer in model.named_buffers():
        if name.endswith('running_mean'):
            buffer.normal_()
        if name.endswith('running_var'):
            buffer.uniform_(0.5, 2)
    return model.eval()


def smooth_images(sizes=SIZES):
    """Yield RGB images of smooth noise."""
    random = np.random.default_rng(0)
    for size in sizes:
        noise = random.integers(0, 256, (12, 12, 3), np.uint8)
        yield cv2.resize(noise, size[::-1], interpolation=cv2.INTER_CUBIC)


def some_ids(*shape):
    """Token ids for a small language model."""
    return torch.randint(WORDS, shape, generator=torch.Generator().manual_seed(1))


def runner_of(cfg, stitches='all', **test_cfg):
    """Build a runner that tests stitches, from a copy of a config."""
    cfg = deepcopy(cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches=stitches, **test_cfg)
    return Runner.from_cfg(cfg)
