"""Errors of a device whose memory is exhausted."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from snnet_mm.utils import refusal

from .stitch_switch import find_stitched_backbone


@contextmanager
def explaining_out_of_memory(model: nn.Module, batch: int) -> Iterator[None]:
    """Let torch's error name the active stitch of a model, its device and the batch."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        device = str(next(model.parameters()).device)
        stitch = find_stitched_backbone(model).active_stitch.id
        reason = '. '.join(str(error).split('. ')[:2])
        expected = 'one with more free memory, smaller images or a smaller batch: '
        expected += f'stitch {stitch}, batches of up to {batch}: {reason}'
        raise refusal('--device', device, expected) from error
