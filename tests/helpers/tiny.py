"""A stitched segmentor small enough to train an iteration instantly."""

from pathlib import Path

from mmengine.config import Config

TOY = (
    Path(__file__).parents[2]
    / 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
)
# A head of one convolution to the labels' size.
ONE_CONV = dict(num_convs=1, kernel_size=1, up_scale=4)


def tiny_config():
    """Return the toy config with two tiny anchors and a single iteration."""
    cfg = Config.fromfile(TOY)
    backbone = cfg.model.backbone
    for anchor, width, depth in zip(backbone.anchors, (8, 12), (2, 4), strict=True):
        anchor.pop('init_cfg')
        arch = dict(embed_dims=width, depth=depth, num_heads=2)
        anchor.update(arch=arch, img_size=32)
    backbone.out_indices = [0, 1, 2, 3]
    backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=4)
    head = cfg.model.decode_head
    head.pop('init_cfg')
    head.update(in_channels=12, channels=8, **ONE_CONV)
    cfg.model.data_preprocessor.size = [32, 32]
    cfg.default_hooks.stitch_statistics.num_images = 4
    cfg.default_hooks.stitch_init.num_images = 2
    cfg.default_hooks.stitch_sampling.sampler.step = 1e4
    for name in ('train', 'val', 'test'):
        loader = cfg[f'{name}_dataloader']
        loader.update(batch_size=2)
        loader.dataset.update(size=[32, 32], num_scenes=4)
    cfg.param_scheduler = []
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.default_hooks.checkpoint.interval = 1
    cfg.default_hooks.pop('visualization')  # which only warns that it is off
    cfg.log_level = 'ERROR'
    return cfg
