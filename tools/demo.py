"""Give small networks budgets in both ways, on generated scenes, in two minutes.

Trains a fast and a slow network. Stitches them and trains all stitches jointly, as in
SN-Netv2. Makes the slow network elastic, without training.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.utils import ToolParser, check, run_command, tool_command

if TYPE_CHECKING:
    from mmengine.runner import Runner

TOY = Path(__file__).parents[1] / 'configs' / 'toy'
# Configs of the two networks by task, and iterations of each and of both stitched.
CONFIGS = dict(
    seg='setr-naive_vit-{}_1xb16-300_toy-scenes-64x64',
    depth='dpt_vit-{}_1xb16-300_toy-scenes-64x64',
)
ITERS = dict(seg=(300, 300, 100), depth=(300, 300, 100))


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('--task', choices=CONFIGS, default='seg', help='what the networks predict')
    what = 'output folder (default: work_dirs/demo, or work_dirs/demo_TASK)'
    add('--work-dir', type=Path, help=what)
    add('--iters', type=int, help='iterations of each training (default: by task)')
    what = 'scenes to evaluate on (default: the config)'
    add('--num-scenes', type=int, help=what)
    args = parser.parse_args()
    for name, value in (('iters', args.iters), ('num-scenes', args.num_scenes)):
        check(value is None or value > 0, f'--{name}', value, '1 or more')
    if args.work_dir is None:
        name = 'demo' if args.task == 'seg' else f'demo_{args.task}'
        args.work_dir = Path('work_dirs', name)
    return args


def write_config(args: argparse.Namespace, name: str) -> Path:
    """Write the config of the fast or slow network into the output folder."""
    from mmengine.config import Config

    cfg = Config.fromfile(TOY / f'{CONFIGS[args.task].format(name)}.py')
    if args.num_scenes is not None:
        for loader in (cfg.val_dataloader, cfg.test_dataloader):
            loader.dataset.num_scenes = args.num_scenes
    args.work_dir.mkdir(parents=True, exist_ok=True)
    cfg.dump(path := args.work_dir / f'{name}.py')
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


class Lines:
    """Prints lines: those of progress in one place, commands at the end."""

    def __init__(self) -> None:
        self.begin, self.commands = time.time(), []

    def __call__(self, line: str) -> None:
        if line.startswith('  python '):
            self.commands.append(line)
        elif 'ETA' in line and sys.stdout.isatty():
            print(f'{line:<79}', end='\r', flush=True)
        elif 'ETA' not in line and line != 'Next:':
            print(line, flush=True)

    def head(self, line: str) -> None:
        print(f'\n=== {line} ({time.time() - self.begin:.0f} s)', flush=True)


def main() -> None:
    args, say = parse_args(), Lines()

    import torch

    import snnet_mm as sn

    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(1)  # threads of such small networks wait for each other
    folder = args.work_dir
    iters = [args.iters or number for number in ITERS[args.task]]
    pair = []
    for name, number in zip(('fast', 'slow'), iters, strict=False):
        say.head(f'Train a {name} network')
        config = write_config(args, name)
        pair.append((str(config), sn.train(config, folder / name, number)))
    say.head('Stitch both networks, and train all stitches jointly')
    stitched = folder / 'stitched.py'
    sn.stitch(*pair, stitched)
    checkpoint = sn.train(stitched, folder / 'stitched', iters[-1])
    draw_pair(tested(stitched, checkpoint), folder / 'stitched')
    say.head('Make the slow network elastic, without training')
    sn.make_elastic(*pair[1], folder / 'elastic', say=say)
    say.head('Done. Next')
    print('  source .venv/bin/activate')
    print(' ', tool_command('test.py', stitched, checkpoint, '--stitch-id', 1))
    print('\n'.join(say.commands))


if __name__ == '__main__':
    run_command(main)
