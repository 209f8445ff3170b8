"""Compare ways to choose and fit chains on validation images.

Takes the config of a trained network and its checkpoints, one for each seed. All ways
have the same measurements of branches, budgets and images, and are tested on the images
of ``test_dataloader``. A way is a sum of words, such as ``rarity+norm``, or ``plain``;
mIoU of the others is compared with that of the first, with 95 % intervals of a paired
bootstrap over images. All images have one size. Measurements and results are kept in
the work directory, so that an interrupted call goes on.
"""

import argparse
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from mmengine.config import Config

from snnet_mm.evaluation.image_scores import ImageScores, resampled_images
from snnet_mm.models.init_model import init_model
from snnet_mm.utils import ToolParser, check, load_config, run_command
from snnet_mm.utils.checkpoints import load_weights_only

ROOT = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(ROOT / 'tools' / 'analysis_tools')]

WORDS = dict(
    plain='plans of the knapsack; all tokens count alike; a fixed ridge',
    rarity='tokens count by the rarity of the class that the network predicts',
    norm='tokens count by 1 / variance, as the next LayerNorm sees their direction',
    oas='ridges by oracle approximating shrinkage of the correlations',
    gram='plans of least quadratic form over branches, by swaps from the knapsack',
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
    what = 'number of training images to fit on (default: %(default)s)'
    add('--images', type=int, default=200, help=what)
    what = 'folder for measurements and results (default: %(default)s)'
    add('--work-dir', type=Path, default=Path('work_dirs/decide'), help=what)
    parser.add_cfg_options()
    return parser.parse_args()


def test_ways(
    cfg: Config, checkpoint: Path, folder: Path, args: argparse.Namespace
) -> dict[str, ImageScores]:
    """Return the scores of every way on one network: ids 1, ... are the budgets."""
    files = {way: folder / f'{way}_{args.images}.npz' for way in args.ways}
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
        chains.fit(left, measured, args.budgets, args.images)
        for way, scores in chains.test().items():
            scores.save(files[way])
    return {way: ImageScores.read(file) for way, file in files.items()}


def compare(seeds: Sequence[Mapping[str, ImageScores]], names: Sequence[str]) -> None:
    """Print the metric of the first way, and differences of the others from it."""
    from compare_fronts import Figure

    base, *others = seeds[0]
    number = seeds[0][base].numerators.shape[1]
    weights = [np.ones((1, number)), number * resampled_images(number, 1000)]
    scores = [
        {way: s.scores(np.concatenate(weights)) for way, s in of_seed.items()}
        for of_seed in seeds
    ]
    for i, name in enumerate(names):
        figure = Figure.of(np.stack([s[base][:, i] for s in scores]))
        print(f'{base:24} {name:8} {", ".join(f"{x:.2f}" for x in figure.seeds)}')
        for way in others if i else ():
            rows = np.stack([s[way][:, i] - s[base][:, i] for s in scores])
            figure = Figure.of(rows)
            each = ', '.join(f'{x:+.2f}' for x in figure.seeds)
            print(f'  {way:22} {name:8} {figure}, by seed {each}')


def main() -> None:
    args = parse_args()
    for way in args.ways:
        known = {*way.split('+')} <= WORDS.keys()
        check(known, '--ways', way, f'sums of {", ".join(WORDS)}')
    cfg = load_config(args.config, args.cfg_options)
    folders = [args.work_dir / str(seed) for seed in range(len(args.checkpoints))]
    seeds = [
        test_ways(cfg, checkpoint, folder, args)
        for checkpoint, folder in zip(args.checkpoints, folders, strict=True)
    ]
    compare(seeds, ['network', *args.budgets])


if __name__ == '__main__':
    run_command(main)
