"""Least-squares start of DeiT3 S/L at 512x512: time beside the forwards, and memory.

Compared on a few images with the authors' way: the states of all images are kept, and
every stitching layer is solved for by the pseudo-inverse of all its tokens in float32.
"""

import resource
import sys
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from snnet_mm.layers import LeastSquares
from snnet_mm.models import StitchedBackbone
from snnet_mm.models.stitching_init import fit_stitching_layers

from ._common import CONFIGS, S_L, elapsed_ms

SIZE, FEW, IMAGES = 512, 4, 100


def run() -> dict:
    cfg = Config.fromfile(CONFIGS / S_L)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    backbone = MODELS.build(cfg.model.backbone).eval()
    images = torch.randn(FEW, 3, SIZE, SIZE).split(1)
    forward_anchors(backbone, images[:1])
    resident = peak_bytes()
    seconds = timed_parts(backbone, images)
    extra = peak_bytes() - resident
    ours = elapsed_ms(lambda: fit_stitching_layers(backbone, images)) / 1e3
    after = peak_bytes()
    start = time.perf_counter()
    tokens = forward_anchors(backbone, images)
    inverting = elapsed_ms(lambda: pseudo_inverses(backbone, tokens)) / 1e3
    theirs = time.perf_counter() - start
    forwards = seconds['forwards'] / FEW * IMAGES
    sums = seconds['sums'] / FEW * IMAGES
    return dict(
        layers=len(backbone.space.layers),
        extra_memory_gb=extra / 1e9,
        more_memory_in_a_second_run_gb=(after - resident - extra) / 1e9,
        forward_s_per_image=seconds['forwards'] / FEW,
        sums_s_per_image=seconds['sums'] / FEW,
        solving_s=seconds['solving'],
        share_of_forwards=(sums + seconds['solving']) / forwards,
        of_images=IMAGES,
        few_images=FEW,
        ours_s=ours,
        theirs_s=theirs,
        ratio=theirs / ours,
        ratio_without_forwards=inverting / (seconds['sums'] + seconds['solving']),
        their_extra_memory_gb=(peak_bytes() - after) / 1e9,
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


@torch.no_grad()
def forward_anchors(
    backbone: StitchedBackbone, images: tuple[Tensor, ...]
) -> dict[tuple[int, int], Tensor]:
    """Tokens ``(all tokens, C)`` behind every block, of all images."""
    kept = {}
    for image in images:
        for a, anchor in enumerate(backbone.anchors):
            blocks = range(anchor.depth)
            _, states = anchor.run_blocks(anchor.embed(image), 0, anchor.depth, blocks)
            for i, state in states.items():
                kept.setdefault((a, i), []).append(state.tokens.flatten(0, 1))
    return {position: torch.cat(tokens) for position, tokens in kept.items()}


def pseudo_inverses(
    backbone: StitchedBackbone, tokens: dict[tuple[int, int], Tensor]
) -> None:
    """Solve for every layer from all tokens at once."""
    for source, target in backbone.space.layers.values():
        torch.linalg.pinv(tokens[tuple(source)]) @ tokens[tuple(target)]


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024
