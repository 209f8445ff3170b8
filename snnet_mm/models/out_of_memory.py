"""Errors of a device whose memory is exhausted."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from snnet_mm.utils import refusal

from .backbones.stitched_backbone import StitchedBackbone


@contextmanager
def explaining_out_of_memory(model: nn.Module, batch: int) -> Iterator[None]:
    """Let torch's error name the active stitch of a model, its device and the batch."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if not isinstance(model, nn.Module):  # FlexibleRunner builds it later
            raise
        device = str(next(model.parameters()).device)
        stitched = (m for m in model.modules() if isinstance(m, StitchedBackbone))
        running = [f'stitch {m.active_stitch.id}' for m in stitched]
        running = ', '.join([*running, f'batches of up to {batch}'])
        reason = '. '.join(str(error).split('. ')[:2])
        expected = 'one with more free memory, smaller images or a smaller batch: '
        raise refusal('--device', device, f'{expected}{running}: {reason}') from error
