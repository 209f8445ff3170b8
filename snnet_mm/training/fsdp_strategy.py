"""Training of stitches under FSDP, which shards parameters by units."""

import torch
from mmengine._strategy import FSDPStrategy
from mmengine.registry import STRATEGIES
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from snnet_mm.anchors import Anchor
from snnet_mm.utils import register


def wrap_anchor_blocks(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    """Make every block of an anchor a unit of FSDP, and all the rest another one.

    Units gather weights when called; embeddings and stitching layers are run otherwise.
    """
    if recurse and isinstance(module, Anchor):
        for block in module.trunk.blocks:
            block.is_fsdp_unit = True
    return recurse or getattr(module, 'is_fsdp_unit', False)


@register(STRATEGIES)
class StitchFSDPStrategy(FSDPStrategy):
    """mmengine's ``FSDPStrategy`` for models of which an iteration trains a part.

    Units are the blocks of anchors, so that blocks which a stitch leaves out get no
    gradients, as under DDP; elsewhere they get zeros, by which weight decay and
    momentum move them. ``use_orig_params`` lets frozen and trained parameters share a
    unit. Checkpoints are those of the whole model. Without a GPU it runs on the CPU.
    """

    def __init__(self, *, model_wrapper: dict | None = None, **kwargs) -> None:
        wrapper = dict(use_orig_params=True, auto_wrap_policy=wrap_anchor_blocks)
        if on_cpu := not torch.accelerator.is_available():
            wrapper['device_id'] = 'cpu'
        kwargs.setdefault('state_dict_cfg', 'full')
        super().__init__(model_wrapper=wrapper | (model_wrapper or {}), **kwargs)
        if on_cpu:  # where torch takes what it frees for a copy
            self.state_dict_config.offload_to_cpu = False
            self.optim_state_dict_config.offload_to_cpu = False

    def load_optim_state_dict(self, state_dict: dict) -> None:
        """Load optimizer state; mmengine 0.10 has torch 2.0's order of arguments."""
        optimizer = self.optim_wrapper.optimizer
        self.optim_wrapper.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(
                model=self.model, optim=optimizer, optim_state_dict=state_dict
            )
        )
