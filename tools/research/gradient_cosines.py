"""Compare gradients of stitches on shared weights: ``gradient_cosines.py CONFIG CKPT``.

Computes the gradients of stitches on the same training batches and, for each pair,
their cosine over the anchor weights that both train. If it is below 0, they conflict
(ESTA, figures 2 and 13). Nothing is trained.
"""

from __future__ import annotations

import argparse
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import track
from rich.table import Table

from snnet_mm.stitching import Selection, middle_stitches
from snnet_mm.utils import ToolParser, check, run_command, write_json

if TYPE_CHECKING:
    import torch
    from mmengine.model import BaseModel

    Gradients = dict[str, torch.Tensor]


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', help='config of a stitched model')
    add('checkpoint', help='checkpoint file, read weights-only')
    what = "'all' or ids (default: the anchors and the middle one of every kind)"
    add('--stitch-id', help=what)
    what = 'only weights whose names hold this, such as qkv (default: all of anchors)'
    add('--weights', default='', metavar='NAME', help=what)
    add('--batches', type=int, default=50, help='training batches (default: 50)')
    add('--device', default='cpu', help='cpu (default) or cuda[:N]')
    add('--out', type=Path, default='gradient_cosines.json', help='file to write')
    parser.add_cfg_options()
    args = parser.parse_args()
    check(args.batches > 0, '--batches', args.batches, '1 or more')
    return args


def gradients(
    model: BaseModel, stitch_id: int, data: dict, weights: str = ''
) -> Gradients:
    """Return gradients by name, of anchor weights whose names contain ``weights``."""
    from snnet_mm.models import find_stitched_backbone, set_stitch

    set_stitch(model, stitch_id)
    model.zero_grad()
    loss, _ = model.parse_losses(model(**data, mode='loss'))
    loss.backward()
    named = find_stitched_backbone(model).anchors.named_parameters()
    return {
        name: parameter.grad.flatten().clone()
        for name, parameter in named
        if parameter.grad is not None and weights in name
    }


def cosine(a: Gradients, b: Gradients) -> float:
    """Return the cosine over the shared weights, NaN if there are none."""
    import torch

    shared = sorted(a.keys() & b.keys())
    if not shared:
        return float('nan')
    # In float32, sums of so many products are off by a percent.
    a, b = (torch.cat([of[name] for name in shared]).double() for of in (a, b))
    return torch.cosine_similarity(a, b, dim=0).item()


def main() -> None:
    args = parse_args()

    from mmengine.runner import Runner

    from snnet_mm.datasets import check_data_folders
    from snnet_mm.inference.init_model import init_model
    from snnet_mm.models import find_stitched_backbone
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    check_data_folders(cfg.get('train_dataloader'), 'train_dataloader')
    model = init_model(cfg, args.checkpoint, device=args.device).train()
    space = find_stitched_backbone(model).space
    ids = middle_stitches(space)
    ids = [*Selection(args.stitch_id).select(space)] if args.stitch_id else ids
    check(len(ids) > 1, '--stitch-id', args.stitch_id, 'two stitches or more')
    loader, found = Runner.build_dataloader(cfg.train_dataloader, seed=0), []
    batches = islice(loader, args.batches)
    for batch in track(batches, 'Batches', total=args.batches):
        data = model.data_preprocessor(batch, training=True)
        grads = [gradients(model, i, data, args.weights) for i in ids]
        matrix = np.eye(len(ids))
        for a, b in combinations(range(len(ids)), 2):
            matrix[a, b] = matrix[b, a] = cosine(grads[a], grads[b])
        found.append(matrix)
    report([f'{i} {space[i].kind}' for i in ids], np.array(found), args.out)


def report(names: list[str], cosines: np.ndarray, out: Path) -> None:
    """Print and write the matrix of mean cosines."""
    from snnet_mm.evaluation import wide_console

    mean, spread = cosines.mean(axis=0), cosines.std(axis=0)
    title = f'Cosine of gradients on shared weights, {len(cosines)} batches'
    table = Table('stitch', *names, title=title)
    for name, row, deviations in zip(names, mean, spread, strict=True):
        cells = zip(row, deviations, strict=True)
        texts = (f'{value:.2f} ± {std:.2f}' for value, std in cells)
        table.add_row(name, *('-' if 'nan' in text else text for text in texts))
    console = wide_console()
    console.print(table)
    pairs = cosines[:, np.triu(np.ones_like(cosines[0], bool), 1)]
    pairs = pairs[~np.isnan(pairs)].clip(-1, 1)
    check(len(pairs), '--weights, --stitch-id', names, 'stitches that share weights')
    angles = np.degrees(np.arccos(pairs)).round(2)
    console.print(
        f'Angles of two stitches: {angles.mean():.1f} degrees on average, '
        f'{(angles > 90).mean():.1%} of {len(angles)} above 90'
    )
    # JSON has no NaN, the cosine of stitches without shared weights.
    kept = np.where(np.isnan(mean), None, mean.round(4)).tolist()
    write_json(out, dict(stitches=names, mean=kept, angles=angles.tolist()))
    console.print(f'Wrote {out}', soft_wrap=True)


if __name__ == '__main__':
    run_command(main)
