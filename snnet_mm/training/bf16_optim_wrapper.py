"""Mixed precision in bfloat16, on CPUs too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner import autocast
from torch import nn


@OPTIM_WRAPPERS.register_module()
class BF16OptimWrapper(OptimWrapper):
    """Runs the forward pass in bfloat16 autocast; weights and steps stay in float32.

    mmengine's ``AmpOptimWrapper`` raises without an accelerator. bfloat16 has as many
    exponent bits as float32, so no loss scale is needed. Training is faster on
    processors that multiply in bfloat16 (AVX512-BF16, AMX), and slower on others.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield
