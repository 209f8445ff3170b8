import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from torch import nn

from snnet_mm.training.config import train_in_half_precision


def test_bf16_optim_wrapper_computes_in_bfloat16_steps_in_float32():
    amp = dict(type='AmpOptimWrapper', loss_scale='dynamic', dtype='float16')
    cfg = Config(dict(optim_wrapper=dict(**amp, optimizer=dict(type='SGD', lr=1.0))))
    train_in_half_precision(cfg)
    wrapper = build_optim_wrapper(model := nn.Linear(4, 2), cfg.optim_wrapper)
    before, images = model.weight.detach().clone(), torch.rand(3, 4)
    with wrapper.optim_context(model):
        found = model(images)
    rounded = torch.nn.functional.linear(
        images.bfloat16(), model.weight.bfloat16(), model.bias.bfloat16()
    )
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, rounded)
    wrapper.update_params(found.float().sum())
    gradient = images.bfloat16().float().sum(0).expand(2, 4)
    torch.testing.assert_close(before - model.weight, gradient, rtol=1e-2, atol=1e-2)
    assert model.weight.dtype == torch.float32
