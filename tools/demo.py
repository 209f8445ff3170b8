"""Demonstrate both ways to smaller budgets on generated scenes, in two minutes.

Trains a fast and a slow network. Stitches them and trains all stitches jointly, as in
SN-Netv2. Makes the slow network elastic, without training.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.utils import ToolParser, check, run_command, tool_command

if TYPE_CHECKING:
    from mmengine.runner import Runner

CONFIG = 'setr-naive_vit-{}_1xb16-300_toy-scenes-64x64.py'
TOY = Path(__file__).parents[1] / 'configs' / 'toy'
ITERS = dict(fast=150, slow=250, stitched=100)
# Of the slow network's FLOPs, of which its head needs 19 %.
BUDGETS = '25%,23%,20%'


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    what = 'output folder (default: %(default)s)'
    add('--work-dir', type=Path, default=Path('work_dirs', 'demo'), help=what)
    what = 'iterations of each training (default: 150, 250 and 100)'
    add('--iters', type=int, help=what)
    what = 'number of scenes to evaluate on (default: as in the config)'
    add('--num-scenes', type=int, help=what)
    args = parser.parse_args()
    for name, value in (('iters', args.iters), ('num-scenes', args.num_scenes)):
        check(value is None or value > 0, f'--{name}', value, '1 or more')
    return args


def write_config(name: str, folder: Path, num_scenes: int | None) -> Path:
    """Write the config of the fast or slow network into the output folder."""
    from mmengine.config import Config

    cfg = Config.fromfile(TOY / CONFIG.format(name))
    if num_scenes is not None:
        for loader in (cfg.val_dataloader, cfg.test_dataloader):
            loader.dataset.num_scenes = num_scenes
    folder.mkdir(parents=True, exist_ok=True)
    cfg.dump(path := folder / f'{name}.py')
    return path


def tested(config: Path, checkpoint: str) -> Runner:
    """Test all stitches of a pair; write table and plot beside its checkpoint."""
    from snnet_mm.training import run

    folder = str(config.with_suffix(''))
    return run.test(config, checkpoint, folder, stitches='all', out_dir=folder)


def draw_pair(runner: Runner, folder: Path) -> None:
    """Draw predictions of both networks and of the middle stitch of the front."""
    from snnet_mm.elastic.report import draw_predictions

    table = runner.test_loop.table
    metric = table.metric.rsplit('/')[-1]
    between = [row.id for row in table.front() if row.id > 1]
    names = {0: 'fast'} | {i: f'stitch {i}' for i in between[len(between) // 2 :][:1]}
    titles = {
        i: f'{name}, {metric} {table.score(table[i]):.3g}'
        for i, name in (names | {1: 'slow'}).items()
    }
    draw_predictions(runner, titles, folder / 'predictions.png')
    print(f'Pictures: {folder}/pareto.png and predictions.png')


def main() -> None:
    args, begin = parse_args(), time.time()

    import torch

    import snnet_mm as sn

    def head(line: str) -> None:
        print(f'\n=== {line} ({time.time() - begin:.0f} s)', flush=True)

    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(1)  # threads of such small networks wait for each other
    folder, pair = args.work_dir, []
    iters = {name: args.iters or number for name, number in ITERS.items()}
    for name in ('fast', 'slow'):
        head(f'Train a {name} network')
        config = write_config(name, folder, args.num_scenes)
        pair.append((str(config), sn.train(config, folder / name, iters[name])))
    head('Stitch both networks, and train all stitches jointly')
    stitched = folder / 'stitched.py'
    sn.stitch(*pair, stitched)
    checkpoint = sn.train(stitched, folder / 'stitched', iters['stitched'])
    draw_pair(tested(stitched, checkpoint), folder / 'stitched')
    known = '--results', folder / 'stitched' / 'stitches.json'
    command = tool_command('test.py', stitched, checkpoint, '--budget', '60%', *known)
    print(f'Next:\n  {command}')
    head('Make the slow network elastic, without training')
    sn.make_elastic(*pair[1], folder / 'elastic', budgets=BUDGETS)
    head('Done. Before the commands above: source .venv/bin/activate')


if __name__ == '__main__':
    run_command(main)
