from types import SimpleNamespace

import torch
from mmengine.optim import OptimWrapper
from torch import nn

from snnet_mm.tasks.mmpretrain import AdaptiveGradClipHook


def step(clip_factor=None):
    """How far a step of SGD of rate 1 moves a layer, and the layer before it."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    wrapper = OptimWrapper(optimizer)
    if clip_factor is not None:
        hook = AdaptiveGradClipHook(clip_factor)
        hook.before_train(SimpleNamespace(optim_wrapper=wrapper))
    scale = torch.tensor([1e-6, 1.0, 10.0, 100.0])
    wrapper.update_params((layer(torch.ones(2, 8)) * scale).sum())
    return before - layer.weight.detach(), before


def test_adaptive_grad_clip_hook_clips_rows_by_weights():
    free, _ = step()
    moved, weight = step(0.1)
    torch.testing.assert_close(moved[0], free[0])
    torch.testing.assert_close(moved[1:].norm(dim=1), 0.1 * weight[1:].norm(dim=1))
    torch.testing.assert_close(
        nn.functional.normalize(moved[1:]), nn.functional.normalize(free[1:])
    )
