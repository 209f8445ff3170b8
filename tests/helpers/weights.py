"""Weight files, loaded as by a config."""

import torch
from mmengine.registry import MODELS


def load(anchor, checkpoint, **options):
    """Load a checkpoint into an existing anchor and return it in eval mode."""
    anchor.init_cfg = dict(type='Pretrained', checkpoint=str(checkpoint), **options)
    anchor.init_weights()
    return anchor.eval()


def build_from(path, state, config, **options):
    """Save weights, and build an anchor from a config and this file."""
    torch.save(state, path)
    return load(MODELS.build(config), path, **options)
