"""Forward pass of single anchors against timm's networks.

timm's networks have no relative position bias; ours are timed without and with it.
"""

from functools import partial

import timm
import torch
from torch import Tensor

from snnet_mm.anchors import PlainViT

from ._common import devices, in_turn

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
    nets = dict(
        timm=timm.create_model(name, img_size=SIZE, num_classes=0),
        ours=ours(),
        ours_with_bias=ours(rel_pos_bias=True),
    )
    nets = {key: net.to(device).eval() for key, net in nets.items()}

    def tokens(key: str) -> Tensor:
        # On a GPU in half precision, as models run there.
        with torch.autocast(device, torch.float16, enabled=device == 'cuda'):
            if key == 'timm':
                return nets[key].forward_features(images)
            return nets[key](images).tokens

    times = in_turn({key: partial(tokens, key) for key in nets}, ROUNDS)
    return dict(
        anchor=name,
        device=device,
        **{f'{key}_ms': ms for key, ms in times.items()},
        of_timm=times['ours'] / times['timm'],
        with_bias_of_timm=times['ours_with_bias'] / times['timm'],
    )
