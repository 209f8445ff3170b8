"""Least-squares start of DeiT3 S/L at 512x512: time beside the forwards, and memory.

The anchors have relative position bias, like the authors'.
Compared on a few images with the authors' way: their attention, the states of all
images are kept, and every stitching layer is solved for by the pseudo-inverse of all
its tokens in float32. With our attention too, which leaves the way of solving alone.
"""

import resource
import sys
from collections.abc import Callable, Iterable
from statistics import median
from unittest.mock import patch

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from snnet_mm.anchors import Anchor
from snnet_mm.models import LeastSquares, StitchedBackbone
from snnet_mm.models.stitching_init import fit_stitching_layers

from ._common import CONFIGS, S_L, devices, elapsed_ms, limits
from ._naive_attention import with_naive_attention

SIZE, FEW, IMAGES, ROUNDS = 512, 4, 100, 9


def run() -> dict:
    return {device: measure(device) for device in devices()}


def measure(device: str) -> dict:
    cfg = Config.fromfile(CONFIGS / S_L)
    init_default_scope(cfg.default_scope)
    for anchor in cfg.model.backbone.anchors:
        anchor.rel_pos_bias = True  # as in the authors' networks
    torch.manual_seed(0)
    backbone = MODELS.build(cfg.model.backbone).to(device).eval()
    naive = [with_naive_attention(anchor) for anchor in backbone.anchors]
    images = torch.randn(FEW, 3, SIZE, SIZE, device=device).split(1)
    forward_anchors(backbone.anchors, images[:1])
    peaks = [peak_bytes(device)]
    for few in (images[:1], images):
        timed_parts(backbone, few)
        peaks.append(peak_bytes(device))
    rounds = []
    for _ in range(ROUNDS):
        seconds = timed_parts(backbone, images)
        tokens = {}
        forwards = elapsed_ms(lambda t=tokens: t.update(forward_anchors(naive, images)))
        inverting = elapsed_ms(lambda t=tokens: pseudo_inverses(backbone, t))
        seconds |= dict(naive_forwards=forwards / 1e3, inverting=inverting / 1e3)
        rounds.append(seconds)
        del tokens
    s = {part: median(r[part] for r in rounds) for part in rounds[0]}
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
        their_forward_s_per_image=s['naive_forwards'] / FEW,
        their_inverting_s=s['inverting'],
        ratio=theirs / ours,
        ratio_with_our_attention=(s['forwards'] + s['inverting']) / ours,
        ratio_without_forwards=s['inverting'] / (s['sums'] + s['solving']),
        their_extra_memory_gb=(peak_bytes(device) - peaks[2]) / 1e9,
    )


def timed_parts(
    backbone: StitchedBackbone, images: tuple[Tensor, ...]
) -> dict[str, float]:
    """Seconds of a fit, apart: forwards of the anchors, sums, and solving."""
    seconds = dict(sums=0.0, solving=0.0)

    def timed(name: str, function: Callable) -> Callable:
        def call(*args: object) -> object:
            result = []
            ms = elapsed_ms(lambda: result.append(function(*args)))
            seconds[name] += ms / 1e3
            return result[0]

        return call

    with (
        patch.object(LeastSquares, 'update', timed('sums', LeastSquares.update)),
        patch.object(LeastSquares, 'x_to_y', timed('solving', LeastSquares.x_to_y)),
        patch.object(LeastSquares, 'y_to_x', timed('solving', LeastSquares.y_to_x)),
    ):
        total = elapsed_ms(lambda: fit_stitching_layers(backbone, images)) / 1e3
    return seconds | dict(forwards=total - sum(seconds.values()))


def macs_of_sums(backbone: StitchedBackbone) -> int:
    """Multiply-accumulates of the sums of one image."""
    tokens = 1 + (SIZE // backbone.anchors[0].patch_size) ** 2
    width = backbone.width_at
    layers = {(source, target) for source, target in backbone.space.layers.values()}
    pairs = {tuple(sorted(layer)) for layer in layers}
    squares = sum(width(source) ** 2 for source, _ in layers)
    return tokens * (squares + sum(width(a) * width(b) for a, b in pairs))


@torch.no_grad()
def forward_anchors(
    anchors: Iterable[Anchor], images: tuple[Tensor, ...]
) -> dict[tuple[int, int], Tensor]:
    """Tokens ``(all tokens, C)`` behind every block, of all images."""
    kept = {}
    for image in images:
        for a, anchor in enumerate(anchors):
            state = anchor.embed(image)
            for i in range(anchor.depth):
                state = anchor.run_block(state, i)
                kept.setdefault((a, i), []).append(state.tokens.flatten(0, 1))
    return {position: torch.cat(tokens) for position, tokens in kept.items()}


def pseudo_inverses(
    backbone: StitchedBackbone, tokens: dict[tuple[int, int], Tensor]
) -> None:
    """Solve for every layer from all tokens at once."""
    for source, target in backbone.space.layers.values():
        torch.linalg.pinv(tokens[tuple(source)]) @ tokens[tuple(target)]


def peak_bytes(device: str) -> int:
    """The most memory that this process ever held, on a GPU in tensors."""
    if device == 'cuda':
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024
