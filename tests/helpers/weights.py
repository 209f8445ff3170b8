"""Files of weights, loaded as a config would load them."""

import torch
from mmengine.registry import MODELS


def load(anchor, checkpoint, **options):
    """Load a checkpoint into an anchor that is there; returns it in eval mode."""
    anchor.init_cfg = dict(type='Pretrained', checkpoint=str(checkpoint), **options)
    anchor.init_weights()
    return anchor.eval()


def build_from(path, state, config, **options):
    """Save weights, and build what a config says from the file."""
    torch.save(state, path)
    return load(MODELS.build(config), path, **options)
