"""What every stitch of a model costs: ``tools/analysis_tools/stitch_table.py CONFIG``.

Prints the table and writes ``costs.json``, which samplers and budgets read, and
``costs.csv``.
"""

import argparse
import os.path as osp
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.config import DictAction
from rich.table import Table
from torch import nn

from snnet_mm.apis import find_stitched_backbone, init_model
from snnet_mm.evaluation import (
    LatencyCheck,
    cost_report,
    cost_table,
    measure_latency,
    measure_memory,
    measuring_setup,
    plot_routes,
    wide_console,
    write_cost_csv,
)
from snnet_mm.stitching import UNITS, CostTable, StitchingSpace
from snnet_mm.utils import check_writable, load_config

DTYPES = ('float32', 'float16', 'bfloat16')


def add_measuring(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        '--latency', action='store_true', help='time the parts of the model'
    )
    group.add_argument(
        '--memory', action='store_true', help='measure the peak memory, on a GPU'
    )
    group.add_argument(
        '--shape',
        nargs=2,
        type=int,
        metavar=('HEIGHT', 'WIDTH'),
        help='input size (default: test_cfg.input_size of the config, or that of the '
        'data preprocessor)',
    )
    group.add_argument('--device', default='cpu', help='cpu (default) or cuda[:N]')
    group.add_argument(
        '--batch', type=int, default=1, help='images in a batch (default: 1)'
    )
    group.add_argument(
        '--dtype', choices=DTYPES, default='float32', help='(default: float32)'
    )
    group.add_argument(
        '--rounds',
        type=int,
        default=20,
        help='how often everything is timed (default: 20)',
    )
    group.add_argument(
        '--check',
        nargs='+',
        type=int,
        metavar='ID',
        help='stitches to time end to end too (default: the anchors and the middle '
        'one of every kind)',
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file path')
    add_measuring(parser.add_argument_group('what is measured'))
    parser.add_argument(
        '--sort',
        choices=('id', *UNITS),
        default='flops',
        help='(default: flops)',
    )
    parser.add_argument(
        '--kind', nargs='+', help='show only these kinds, such as anchor FS SF'
    )
    parser.add_argument(
        '--draw-routes',
        nargs='*',
        type=int,
        metavar='ID',
        help='draw the stitching space and the routes of these stitches to routes.png '
        '(default: the anchors and the middle one of every kind)',
    )
    parser.add_argument(
        '--out', type=Path, help='output folder (default: work_dirs/NAME OF THE CONFIG)'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='override settings of the config, in the form of key=value pairs',
    )
    args = parser.parse_args()
    for name in ('batch', 'rounds'):
        if getattr(args, name) < 1:
            parser.error(f'--{name} {getattr(args, name)}: allowed is 1 or more')
    if args.shape is not None and min(args.shape) < 1:
        parser.error(f'--shape {args.shape}: allowed is 1 pixel or more each way')
    if args.memory and not args.device.startswith('cuda'):
        parser.error('--memory needs a GPU: peaks are measured there (--device cuda)')
    if args.device.startswith('cuda') and not torch.cuda.is_available():
        parser.error(f'--device {args.device}: torch finds no CUDA device')
    return args


def build_model(args: argparse.Namespace) -> nn.Module:
    cfg = load_config(args.config, args.cfg_options)
    args.shape = args.shape or (cfg.get('test_cfg') or {}).get('input_size')
    # Costs do not depend on the weights.
    model = init_model(cfg, None, device=args.device)
    return model.to(getattr(torch, args.dtype))


def chosen_ids(
    space: StitchingSpace, costs: CostTable, args: argparse.Namespace
) -> list[int]:
    """Ids of the kinds that were asked for, sorted."""
    kinds = sorted({stitch.kind for stitch in space})
    unknown = sorted(set(args.kind or ()) - set(kinds))
    if unknown:
        raise ValueError(f'--kind {" ".join(unknown)}; allowed are {kinds}')
    ids = [s.id for s in space if args.kind is None or s.kind in args.kind]
    if args.sort == 'id':
        return ids
    column = costs.column(args.sort)
    return sorted(ids, key=lambda i: (column[i], i))


def check_table(space: StitchingSpace, checks: Sequence[LatencyCheck]) -> Table:
    table = Table(title='Latency, predicted from parts and measured end to end')
    table.add_column('id', justify='right')
    table.add_column('route')
    for name in ('predicted (ms)', 'measured (ms)', 'error', 'spread'):
        table.add_column(name, justify='right')
    for c in checks:
        table.add_row(
            str(c.stitch_id),
            space.describe(space[c.stitch_id]),
            f'{c.predicted:.2f}',
            f'{c.measured:.2f}',
            f'{c.error:+.1%}',
            f'{c.spread:.1%}',
        )
    return table


def main() -> None:
    args = parse_args()
    name = osp.splitext(osp.basename(args.config))[0]
    # At once: measuring takes minutes.
    out = check_writable(args.out or Path('work_dirs') / name, 'option: --out')
    model = build_model(args)
    space = find_stitched_backbone(model).space
    shape = None if args.shape is None else tuple(args.shape)
    costs, checks = cost_table(model, shape), ()
    chosen_ids(space, costs, argparse.Namespace(kind=args.kind, sort='id'))
    for i in args.draw_routes or ():
        space[i]  # refused before anything is measured
    latency = memory = None
    if args.latency:
        measured = measure_latency(
            model, shape, args.batch, args.rounds, args.check, progress=True
        )
        latency, checks = measured.by_stitch, measured.checks
    if args.memory:
        memory = measure_memory(model, shape, args.batch, progress=True)
    if args.latency or args.memory:
        costs = costs.measured(measuring_setup(model, args.batch), latency, memory)
    ids = chosen_ids(space, costs, args)
    console = wide_console()
    console.print(cost_report(space, costs, ids))
    if checks:
        console.print(check_table(space, checks))
    costs.save(out / 'costs.json', checks=[vars(c) for c in checks])
    write_cost_csv(space, costs, ids, out / 'costs.csv')
    console.print(f'Wrote costs.json and costs.csv to {out}', soft_wrap=True)
    if args.draw_routes is not None:
        plot_routes(space, out / 'routes.png', args.draw_routes or None)


if __name__ == '__main__':
    main()
