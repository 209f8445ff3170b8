"""Train a network and derive smaller budgets, in about two minutes.

Trains one small network on generated scenes, makes it elastic, and prints a table of
all budgets.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.utils import ToolParser, check, run_command

if TYPE_CHECKING:
    from mmengine.config import Config

CONFIGS = Path(__file__).parents[1] / 'configs' / 'toy'
# Config and iterations by task; training takes under a minute on two cores.
TASKS = dict(
    seg=('setr-naive_vit-slow_1xb16-300_toy-scenes-64x64', 340),
    depth=('dpt_vit-demo_1xb8-300_toy-scenes-64x64', 300),
    det=('fcos_vit-demo_1xb16-300_toy-scenes-64x64', 300),
    cls=('cls_vit-slow_1xb16-600_toy-scenes-64x64', 400),
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('--task', choices=TASKS, default='seg', help='what the network predicts')
    what = 'output folder (default: work_dirs/demo, or work_dirs/demo_TASK)'
    add('--work-dir', type=Path, help=what)
    add('--iters', type=int, help='iterations of training (default: by task)')
    what = 'scenes to evaluate on (default: the config)'
    add('--num-scenes', type=int, help=what)
    args = parser.parse_args()
    for name, value in (('iters', args.iters), ('num-scenes', args.num_scenes)):
        check(value is None or value > 0, f'--{name}', value, '1 or more')
    if args.work_dir is None:
        name = 'demo' if args.task == 'seg' else f'demo_{args.task}'
        args.work_dir = Path('work_dirs', name)
    return args


def demo_config(args: argparse.Namespace) -> Config:
    """Load a toy config and set its number of iterations."""
    from snnet_mm.utils import load_config, set_length

    name, iters = TASKS[args.task]
    cfg = load_config(CONFIGS / f'{name}.py')
    iters = args.iters or iters
    set_length(cfg, iters)
    cfg.default_hooks.checkpoint.interval = iters
    cfg.work_dir = str(args.work_dir / 'network')
    if args.num_scenes is not None:
        for loader in (cfg.val_dataloader, cfg.test_dataloader):
            loader.dataset.num_scenes = args.num_scenes
    return cfg


def main() -> None:
    args, start = parse_args(), time.time()

    import torch
    from mmengine.config import Config

    from snnet_mm.elastic import make_elastic
    from snnet_mm.training import run

    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(1)  # more threads slow down such a small network
    cfg = demo_config(args)
    print('Training a network, as any mm config does', flush=True)
    training = Config(cfg.to_dict())
    training.val_cfg = training.val_dataloader = training.val_evaluator = None
    runner = run.train(training)
    checkpoint = Path(runner.work_dir, f'iter_{runner.max_iters}.pth')
    print('Making it elastic', flush=True)
    make_elastic(cfg, checkpoint, args.work_dir)
    print(f'Done in {time.time() - start:.0f} s')


if __name__ == '__main__':
    run_command(main)
