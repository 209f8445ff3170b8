"""Mixed precision in bfloat16, on CPUs too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner import autocast
from torch import nn

from snnet_mm.utils import check, register


@register(OPTIM_WRAPPERS)
class BF16OptimWrapper(OptimWrapper):
    """Runs the forward pass in bfloat16 autocast; weights and steps stay float32.

    mmengine's ``AmpOptimWrapper`` refuses to run without an accelerator. bfloat16 has
    the exponent of float32, so no loss scale is needed. It pays on processors that
    multiply in bfloat16 (AVX512-BF16, AMX), and costs time on others.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


def train_in_half_precision(cfg: Config, asked: bool = True) -> None:
    """Make a config train in mixed precision: bfloat16 on a CPU, mm's AMP elsewhere.

    If it was not ``asked`` for by ``--amp``, an ``AmpOptimWrapper`` of the config is
    replaced on a CPU, and any other wrapper stays.
    """
    wrapper, on_cpu = cfg.get('optim_wrapper') or {}, get_device() == 'cpu'
    kind = str(getattr(wrapper.get('type'), '__name__', wrapper.get('type')))
    if not asked and not (on_cpu and kind == 'AmpOptimWrapper'):
        return
    if not on_cpu:
        wrapper.type = 'AmpOptimWrapper'
        wrapper.setdefault('loss_scale', 'dynamic')
        return
    key, value = ('--amp', True) if asked else ('optim_wrapper.type', kind)
    no_detector = "on a CPU no model of mmdet, as mmcv's NMS has no bfloat16"
    check(cfg.get('default_scope') != 'mmdet', key, value, no_detector)
    if not asked:
        print(f'{kind} needs an accelerator: training in bfloat16 on the CPU.')
    wrapper.type = 'BF16OptimWrapper'
    for key in ('loss_scale', 'dtype', 'use_fsdp'):  # of AmpOptimWrapper
        wrapper.pop(key, None)
