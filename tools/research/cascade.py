"""Evaluate a cascade of two segmentation models: ``tools/research/cascade.py``.

The fast model runs on every image, the slow one also on the share with the highest
entropy. Writes a results file for ``compare_fronts.py`` with one row per share, whose
FLOPs are means over images. The cascade is a training-free baseline for stitching.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.stitching import StitchRow, StitchTable
from snnet_mm.utils import ToolParser, check, run_command

if TYPE_CHECKING:
    from snnet_mm.evaluation.image_scores import ImageScores

SHARES = np.linspace(0, 1, 11)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', help='config of the fast model')
    add('checkpoint', help='its checkpoint')
    what = '%s model, by tools/test.py, with per_image.npz beside it'
    add('fast', type=Path, help='results.json of the ' + what % 'fast')
    add('slow', type=Path, help='results.json of the ' + what % 'slow')
    what = 'folder for stitches.json and per_image.npz (default: cascade)'
    add('--out', type=Path, default=Path('cascade'), help=what)
    parser.add_cfg_options()
    return parser.parse_args()


def entropies(args: argparse.Namespace) -> np.ndarray:
    """Return the mean pixel entropy of every test image, in nats."""
    import torch
    from mmengine.runner import Runner

    from snnet_mm.inference.init_model import init_model
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    model = init_model(cfg, args.checkpoint)
    found = []
    with torch.no_grad():
        for batch in Runner.build_dataloader(cfg.test_dataloader):
            for sample in model.test_step(batch):
                logits = sample.seg_logits.data
                check(len(logits) > 1, 'config', args.config, 'at least two classes')
                distribution = torch.distributions.Categorical(
                    logits=logits.movedim(0, -1)
                )
                found.append(distribution.entropy().mean().item())
    return np.array(found)


def read(path: Path) -> tuple[StitchTable, StitchRow, ImageScores]:
    from snnet_mm.evaluation.image_scores import ImageScores

    results, images = StitchTable.read(path), path.with_name('per_image.npz')
    check(len(results) == 1, 'results', str(path), 'results of one model')
    return results, results.rows[0], ImageScores.read(images, results)


def main() -> None:
    args = parse_args()

    from snnet_mm.evaluation.image_scores import ImageScores

    (results, fast, images), (_, slow, better) = read(args.fast), read(args.slow)
    entropy = entropies(args)
    ImageScores.stack([images, better])  # raises if the images differ
    same = len(entropy) == images.numerators.shape[1]
    check(same, 'images', len(entropy), 'as many as the results have, by the config')
    # Rank of every image, most uncertain first.
    place = np.argsort(np.argsort(-entropy))
    to_slow = place < np.round(SHARES * len(entropy))[:, None]
    parts = {
        name: np.where(to_slow[..., None], getattr(better, name), getattr(images, name))
        for name in ('numerators', 'denominators')
    }
    scores = replace(images, ids=tuple(range(len(SHARES))), **parts)
    values = scores.scores(np.ones((1, len(entropy))))[0]
    rows = [
        replace(
            fast,
            id=i,
            kind='cascade',
            route=f'fast, then slow for {share:.0%}',
            flops=round(fast.flops + share * slow.flops),
            params=fast.params + slow.params,
            metrics={results.metric: float(value)},
        )
        for i, (share, value) in enumerate(zip(SHARES, values, strict=True))
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    directions = {results.metric: results.directions[results.metric]}
    replace(results, rows=rows, directions=directions).save(args.out / 'stitches.json')
    replace(scores, digest=results.digest).save(args.out / 'per_image.npz')
    for row in rows:
        score = f'{results.metric} {row.metrics[results.metric]:.2f}'
        print(f'{row.route}: {row.flops / 1e9:.2f} GFLOPs, {score}')
    worst = (fast.flops + slow.flops) / 1e9
    print(f'Worst case of an image: {worst:.2f} GFLOPs. Wrote {args.out}/stitches.json')


if __name__ == '__main__':
    run_command(main)
