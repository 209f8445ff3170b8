"""Angles between gradients of stitches: ``gradient_cosines.py CONFIG CHECKPOINT``.

Every stitch has the loss of the same training batches. For every two of them, the angle
is that of their gradients on the anchors' weights that both train; above 90 degrees,
they conflict (ESTA, figures 2 and 13). Nothing is trained.
"""

from __future__ import annotations

import argparse
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.stitching import Selection
from snnet_mm.utils import ToolParser, check, run_command, write_json

if TYPE_CHECKING:
    from mmengine.model import BaseModel
    from torch import Tensor


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', help='config of a stitched model')
    add('checkpoint', help='checkpoint file')
    add('--stitch-id', help="'all' or ids (default: those that the config draws)")
    what = "weights of the anchors by a part of their names (default: 'qkv')"
    add('--weights', default='qkv', metavar='NAME', help=what)
    add('--batches', type=int, default=10, help='training batches (default: 10)')
    add('--device', help='cpu or cuda[:N] (default: the best available)')
    out = Path('gradient_cosines.json')
    add('--out', type=Path, default=out, help=f'file to write (default: {out})')
    parser.add_cfg_options()
    args = parser.parse_args()
    check(args.batches > 0, '--batches', args.batches, '1 or more')
    return args


def gradients(
    model: BaseModel, stitch: int, data: dict, part: str
) -> dict[str, Tensor]:
    """Return the gradients of the anchors' weights with a part in their names."""
    from snnet_mm.models import find_stitched_backbone, set_stitch

    set_stitch(model, stitch)
    model.zero_grad()
    model.parse_losses(model(**data, mode='loss'))[0].backward()
    named = find_stitched_backbone(model).anchors.named_parameters()
    named = ((n, p.grad) for n, p in named if part in n and p.grad is not None)
    return {name: grad.flatten().double().cpu() for name, grad in named}


def cosines(grads: list[dict[str, Tensor]]) -> list[float | None]:
    """Return the cosine of every two gradients, None if they share no weights."""
    import torch

    found: list[float | None] = []
    for a, b in combinations(grads, 2):
        shared = sorted(a.keys() & b.keys())
        pair = [torch.cat([of[name] for name in shared]) for of in (a, b) if shared]
        found.append(torch.cosine_similarity(*pair, dim=0).item() if pair else None)
    return found


def main() -> None:
    args = parse_args()

    from mmengine.runner import Runner
    from rich.progress import track

    from snnet_mm.models import find_stitched_backbone
    from snnet_mm.models.init_model import init_model
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    model = init_model(cfg, args.checkpoint, device=args.device).train()
    sampler = cfg.default_hooks.stitch_sampling.sampler
    wanted = args.stitch_id or sampler.get('ids') or 'all'
    ids = [*Selection(wanted).select(find_stitched_backbone(model).space)]
    check(len(ids) > 1, '--stitch-id', wanted, 'two stitches or more')
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    found = []
    for batch in track(islice(loader, args.batches), 'Batches', args.batches):
        data = model.data_preprocessor(batch, training=True)
        found.append(cosines([gradients(model, i, data, args.weights) for i in ids]))
    pairs = np.array([c for of_batch in found for c in of_batch if c is not None])
    check(len(pairs), '--weights', args.weights, 'weights that two stitches share')
    angles = np.degrees(np.arccos(pairs.clip(-1, 1)))
    summary = f'{angles.mean():.1f} degrees on average, {(angles > 90).mean():.1%} of '
    summary += f'{len(angles)} angles above 90'
    write_json(args.out, dict(stitches=ids, cosines=found, summary=summary))
    print(f'{summary}. Wrote {args.out}')


if __name__ == '__main__':
    run_command(main)
