"""Make a fast anchor from a slow one: ``tools/make_fast_anchor.py CONFIG CKPT``.

Replaces blocks by affine maps, then distils the slow anchor into this chain on the
training images of the config. Writes ``fast.py``, the config of the fast anchor alone,
and ``fast.pth``, its weights. Prints the metrics of the slow anchor, the chain and the
trained network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from snnet_mm.utils import ToolParser, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.split('\n\n')[0])
    add = parser.add_argument
    add('config', help='config of the slow anchor alone, a PlainViT in any mm model')
    add('checkpoint', help='its trained checkpoint')
    size = parser.add_mutually_exclusive_group()
    what = 'keep every n-th block (default: 2)'
    size.add_argument('--every', type=int, default=2, help=what)
    what = 'blocks to keep, such as 0 3 6 9'
    size.add_argument('--blocks', type=int, nargs='+', help=what)
    what = 'output folder (default: work_dirs/NAME_fast)'
    add('--work-dir', type=Path, help=what)
    add('--iters', type=int, default=300, help='iterations of training (default: 300)')
    what = 'train in mixed precision; on a CPU in bfloat16'
    add('--amp', action='store_true', help=what)
    add('--no-labels', action='store_true', help='learn from tokens alone')
    add('--resume', action='store_true', help='go on with an interrupted training')
    parser.add_cfg_options()
    args = parser.parse_args()
    if args.work_dir is None:
        args.work_dir = Path('work_dirs', Path(args.config).stem + '_fast')
    return args


def main() -> None:
    args = parse_args()

    from snnet_mm.elastic import make_fast_anchor

    metrics = make_fast_anchor(
        args.config,
        args.checkpoint,
        args.work_dir,
        every=args.every,
        blocks=args.blocks,
        iters=args.iters,
        labels=not args.no_labels,
        amp=args.amp,
        resume=args.resume,
        cfg_options=args.cfg_options,
        verbose=args.verbose,
    )
    table = Table('network', *metrics['trained'])
    for name, found in metrics.items():
        table.add_row(name, *(f'{value:.2f}' for value in found.values()))
    Console().print(table)
    print(f'Wrote fast.py and fast.pth to {args.work_dir}')


if __name__ == '__main__':
    run_command(main)
