"""Compare ways to choose and fit chains on validation images.

Takes the config of a trained network and its checkpoints, one for each seed. All ways
have the same measurements of branches and budgets, and are tested on the images of
``test_dataloader``. A way is a sum of words, such as ``rarity+norm``, or ``plain``; a
number in it is that of the training images to fit on, 200 by default. mIoU of the
others is compared with that of the first, with 95 % intervals of a paired bootstrap
over images. All images have one size. Measurements and scores are kept in the work
directory, so that an interrupted call goes on; ``decide.json`` has the figures.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.utils import ToolParser, check, run_command, write_json

if TYPE_CHECKING:
    from mmengine.config import Config

    from snnet_mm.evaluation.image_scores import ImageScores

ROOT = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(ROOT / 'tools' / 'analysis_tools')]

IMAGES, RESAMPLES = 200, 1000
WORDS = dict(
    plain='plans of the knapsack; all tokens count alike; a fixed ridge',
    rarity='tokens count by the rarity of the class that the network predicts',
    norm='tokens count by 1 / variance, as the next LayerNorm sees their direction',
    oas='ridges by oracle approximating shrinkage of the correlations',
    gram='plans of least quadratic form over branches, by knapsacks in turn',
    maps='narrow branches may have an affine map beside their units',
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.partition('\n')[0])
    add = parser.add_argument
    add('config', help='config of a trained model')
    add('checkpoints', nargs='+', type=Path, help='its checkpoints, one for each seed')
    what = '; '.join(f'{word}: {words}' for word, words in WORDS.items())
    add('--ways', nargs='+', default=['rarity', 'plain'], help=f'ways. {what}')
    what = 'budgets, shares of the FLOPs (default: %(default)s)'
    add('--budgets', nargs='+', default=['50%', '33%', '25%', '15%'], help=what)
    what = 'folder for measurements and results (default: %(default)s)'
    add('--work-dir', type=Path, default=Path('work_dirs/decide'), help=what)
    parser.add_cfg_options()
    return parser.parse_args()


def images_of(way: str) -> int:
    """Return the number of images that the chains of a way are fitted on."""
    return next((int(word) for word in way.split('+') if word.isdigit()), IMAGES)


def test_ways(
    cfg: Config, checkpoint: Path, folder: Path, args: argparse.Namespace
) -> dict[str, ImageScores]:
    """Return the scores of every way on one network: ids 1, ... are the budgets."""
    from snnet_mm.evaluation.image_scores import ImageScores
    from snnet_mm.models.init_model import init_model
    from snnet_mm.utils.checkpoints import load_weights_only

    files = {way: folder / f'{way}.npz' for way in args.ways}
    if left := [way for way, file in files.items() if not file.exists()]:
        from decide_ways import Chains, measure

        loaded = load_weights_only(checkpoint)
        network = init_model(cfg, checkpoint, device='cpu', loaded=loaded)
        chains = Chains(cfg, network)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / 'measured.pkl'
        if not file.exists():
            file.write_bytes(pickle.dumps(measure(chains)))
        measured = pickle.loads(file.read_bytes())
        for number in sorted({images_of(way) for way in left}):
            ways = [way for way in left if images_of(way) == number]
            chains.fit(ways, measured, args.budgets, number)
            for way, scores in chains.test().items():
                scores.save(files[way])
    return {way: ImageScores.read(file) for way, file in files.items()}


def compare(
    seeds: Sequence[Mapping[str, ImageScores]], names: Sequence[str]
) -> list[dict]:
    """Return the metric of the first way, and differences of the others from it."""
    from compare_fronts import Figure

    from snnet_mm.evaluation.image_scores import resampled_images

    base, *others = seeds[0]
    number, rows = seeds[0][base].numerators.shape[1], []
    weights = [np.ones((1, number)), number * resampled_images(number, RESAMPLES)]
    scores = [
        {way: s.scores(np.concatenate(weights)) for way, s in of_seed.items()}
        for of_seed in seeds
    ]
    for i, name in enumerate(names):
        first = np.stack([of_seed[base][:, i] for of_seed in scores])
        rows.append(dict(budget=name, way=base, **asdict(Figure.of(first))))
        for way in others if i else ():
            change = np.stack([of_seed[way][:, i] for of_seed in scores]) - first
            rows.append(dict(budget=name, way=way, **asdict(Figure.of(change))))
    return rows


def main() -> None:
    args = parse_args()
    for way in args.ways:
        words = {word for word in way.split('+') if not word.isdigit()}
        right = words <= WORDS.keys()
        check(right, '--ways', way, f'sums of {", ".join(WORDS)} and a number')
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    folders = [args.work_dir / str(seed) for seed in range(len(args.checkpoints))]
    seeds = [
        test_ways(cfg, checkpoint, folder, args)
        for checkpoint, folder in zip(args.checkpoints, folders, strict=True)
    ]
    rows = compare(seeds, ['network', *args.budgets])
    write_json(args.work_dir / 'decide.json', dict(rows=rows))
    for row in rows:
        text = '{budget:8} {way:16} {value:+.2f} [{low:.2f}, {high:.2f}]'.format(**row)
        print(text, ', '.join(f'{x:+.2f}' for x in row['seeds']))


if __name__ == '__main__':
    run_command(main)
