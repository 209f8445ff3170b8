"""Models that FSDP shards."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Let all ranks have all weights of a model that FSDP shards, as plain modules.

    Changes of weights are kept. For any other model nothing happens.
    """
    if not isinstance(model, FullyShardedDataParallel):
        yield
        return
    units = [
        (parent, name, unit)
        for parent in model.modules()
        for name, unit in parent.named_children()
        if isinstance(unit, FullyShardedDataParallel)
    ]
    with FullyShardedDataParallel.summon_full_params(model):
        for parent, name, unit in units:
            setattr(parent, name, unit.module)
        try:
            yield
        finally:
            for parent, name, unit in units:
                setattr(parent, name, unit)
