"""Tokens of single anchors against timm's networks and against naive attention.

timm's networks have no relative position bias; ours is measured without and with it.
The naive network is ours with the attention that the authors' code has.
"""

from functools import partial

import timm
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.anchors import PlainViT

from ._common import autocast, devices, in_turn, limits, limits_ms
from ._naive_attention import with_naive_attention

SIZE, ROUNDS = 512, 9
ANCHORS = {'small': 'deit3_small_patch16_224', 'large': 'deit3_large_patch16_224'}


def run() -> dict:
    return dict(
        anchors=[measure(*a, device) for device in devices() for a in ANCHORS.items()]
    )


@torch.inference_mode()
def measure(arch: str, name: str, device: str) -> dict:
    torch.manual_seed(0)
    images = torch.randn(1, 3, SIZE, SIZE, device=device)
    ours = partial(PlainViT, arch=arch, img_size=SIZE, out='end', final_norm=True)
    with FlopCounterMode(display=False) as counter:
        ours().to('meta')(images.to('meta'))
    nets = dict(
        timm=timm.create_model(name, img_size=SIZE, num_classes=0),
        ours=ours(),
        ours_with_bias=ours(rel_pos_bias=True),
    )
    nets['naive_with_bias'] = with_naive_attention(nets['ours_with_bias'])
    nets = {key: net.to(device).eval() for key, net in nets.items()}

    def tokens(key: str) -> Tensor:
        with autocast(device):
            if key == 'timm':
                return nets[key].forward_features(images)
            return nets[key](images).tokens

    torch.testing.assert_close(
        tokens('naive_with_bias'), tokens('ours_with_bias'), rtol=1e-2, atol=1e-2
    )
    times = in_turn({key: partial(tokens, key) for key in nets}, ROUNDS)
    return dict(
        anchor=name,
        device=device,
        **{f'{key}_ms': ms for key, ms in times.items()},
        of_timm=times['ours'] / times['timm'],
        with_bias_of_timm=times['ours_with_bias'] / times['timm'],
        naive_of_ours=times['naive_with_bias'] / times['ours_with_bias'],
        **limits_ms(nets['ours'], counter.get_total_flops() // 2, limits(device)),
    )
