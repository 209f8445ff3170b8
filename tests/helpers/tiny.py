"""A stitched segmentor small enough to train an iteration instantly."""

from toy import SEGMENTOR as TOY  # noqa: F401
from toy import narrow_toy, without_weights


def tiny_config():
    """Return the toy config with two tiny anchors and a single iteration."""
    layer = dict(type='LoRAStitchingLayer', rank=4)
    backbone = dict(out_indices=[0, 1, 2, 3], stitching_layer=layer)
    cfg = narrow_toy(dict(img_size=32), ((8, 2), (12, 4)), **backbone)
    without_weights(cfg.model)
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
