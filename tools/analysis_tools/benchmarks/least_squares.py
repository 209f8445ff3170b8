"""Least-squares start of DeiT3 S/L at 512x512: time next to the forwards, and memory.

Compared on a few images with the authors' way: their attention, the states of all
images are kept, and every stitching layer is solved for by the pseudo-inverse of all
its tokens in float32. With our attention too, which leaves the way of solving alone.
"""

import resource
from collections.abc import Iterable
from unittest.mock import patch

import torch
from torch import Tensor

from snnet_mm.anchors import Anchor
from snnet_mm.models import LeastSquares, StitchedBackbone, fit_stitching_layers

from ._common import S_L, build, devices, elapsed_ms, limits, medians, read_config
from ._naive_attention import with_naive_attention

SIZE, FEW, IMAGES, ROUNDS = 512, 4, 100, 9


def run() -> dict:
    return {device: measure(device) for device in devices()}


def measure(device: str) -> dict:
    cfg = read_config(S_L)
    cfg.model = cfg.model.backbone
    for anchor in cfg.model.anchors:
        anchor.rel_pos_bias = True  # as in the authors' networks
    backbone = build(cfg, device)
    naive = [with_naive_attention(anchor) for anchor in backbone.anchors]
    images = torch.randn(FEW, 3, SIZE, SIZE, device=device).split(1)
    forward_anchors(backbone.anchors, images[:1])
    peaks = [peak_bytes(device)]
    for few in (images[:1], images):
        seconds_of_fit(backbone, few)
        peaks.append(peak_bytes(device))
    s = medians(
        seconds_of_fit(backbone, images) | seconds_of_theirs(backbone, naive, images)
        for _ in range(ROUNDS)
    )
    rate = 1e9 * limits(device, torch.float64)['gmacs']
    ours = s['forwards'] + s['sums'] + s['solving']
    theirs = s['naive_forwards'] + s['inverting']
    return dict(
        layers=len(backbone.space.layers),
        extra_memory_gb=(peaks[1] - peaks[0]) / 1e9,
        more_memory_for_four_images_gb=(peaks[2] - peaks[1]) / 1e9,
        forward_s_per_image=s['forwards'] / FEW,
        sums_s_per_image=s['sums'] / FEW,
        sums_arithmetic_s_per_image=macs_of_sums(backbone) / rate,
        solving_s=s['solving'],
        share_of_forwards=(s['sums'] * IMAGES / FEW + s['solving'])
        / (s['forwards'] * IMAGES / FEW),
        of_images=IMAGES,
        few_images=FEW,
        ours_s=ours,
        theirs_s=theirs,
        ratio=theirs / ours,
        ratio_with_our_attention=(s['forwards'] + s['inverting']) / ours,
        ratio_without_forwards=s['inverting'] / (s['sums'] + s['solving']),
        their_extra_memory_gb=(peak_bytes(device) - peaks[2]) / 1e9,
    )


def seconds_of_fit(
    backbone: StitchedBackbone, images: tuple[Tensor, ...]
) -> dict[str, float]:
    """Seconds of a fit, apart: forwards of the anchors, sums, and solving."""
    seconds = dict(sums=0.0, solving=0.0)

    def timed(name: str, method: str) -> object:
        function = getattr(LeastSquares, method)

        def call(*args: object) -> object:
            result = []
            seconds[name] += elapsed_ms(lambda: result.append(function(*args))) / 1e3
            return result[0]

        return patch.object(LeastSquares, method, call)

    both = timed('solving', 'x_to_y'), timed('solving', 'y_to_x')
    with timed('sums', 'update'), both[0], both[1]:
        total = elapsed_ms(lambda: fit_stitching_layers(backbone, images)) / 1e3
    return seconds | dict(forwards=total - sum(seconds.values()))


def seconds_of_theirs(
    backbone: StitchedBackbone, naive: list[Anchor], images: tuple[Tensor, ...]
) -> dict[str, float]:
    """Seconds of the authors' way: all states first, then a solution for each layer."""
    tokens = {}

    def invert() -> None:
        for source, target in backbone.space.layers.values():
            torch.linalg.pinv(tokens[tuple(source)]) @ tokens[tuple(target)]

    forwards = elapsed_ms(lambda: tokens.update(forward_anchors(naive, images)))
    return dict(naive_forwards=forwards / 1e3, inverting=elapsed_ms(invert) / 1e3)


def macs_of_sums(backbone: StitchedBackbone) -> int:
    """Multiply-accumulates of the sums of one image."""
    tokens = 1 + (SIZE // backbone.anchors[0].patch_size) ** 2
    width = backbone.width_at
    layers = {tuple(layer) for layer in backbone.space.layers.values()}
    pairs = {tuple(sorted(layer)) for layer in layers}
    squares = sum(width(source) ** 2 for source, _ in layers)
    return tokens * (squares + sum(width(a) * width(b) for a, b in pairs))


@torch.no_grad()
def forward_anchors(
    anchors: Iterable[Anchor], images: tuple[Tensor, ...]
) -> dict[tuple[int, int], Tensor]:
    """Tokens ``(all tokens, C)`` after every block, of all images."""
    kept = {}
    for image in images:
        for a, anchor in enumerate(anchors):
            state = anchor.embed(image)
            for i in range(anchor.depth):
                state = anchor.run_block(state, i)
                kept.setdefault((a, i), []).append(state.tokens.flatten(0, 1))
    return {position: torch.cat(tokens) for position, tokens in kept.items()}


def peak_bytes(device: str) -> int:
    """The most memory that this process ever held, on a GPU in tensors."""
    if device == 'cuda':
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
