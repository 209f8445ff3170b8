"""Tabulate the costs of all stitches: ``tools/analysis_tools/stitch_table.py CONFIG``.

Prints the table and writes ``costs.json``, which samplers and budgets read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from snnet_mm.stitching import (
    UNITS,
    StitchingSpace,
    StitchTable,
    default_step,
    group_by_cost,
    middle_stitches,
)
from snnet_mm.utils import ToolParser, check, check_writable, parse_size, run_command

if TYPE_CHECKING:
    from snnet_mm.costs import LatencyCheck

SOME = '(default: the anchors and the middle one of every kind)'


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', help='config file path')
    add('--latency', action='store_true', help='measure latency')
    what = """measure stitches compiled by torch.compile, those of --check alone; each
        takes up to a minute to compile"""
    add('--compile', action='store_true', help=what)
    add('--memory', action='store_true', help='measure peak memory, on a GPU')
    what = """input sizes (default: test_cfg.input_size of the config, or the
        data preprocessor's)"""
    add('--shape', nargs='+', metavar='HxW', help=what)
    add('--device', default='cpu', help='cpu (default) or cuda[:N]')
    add('--batch', type=int, default=1, help='images in a batch (default: 1)')
    dtypes = ('float32', 'float16', 'bfloat16')
    add('--dtype', choices=dtypes, default='float32', help='(default: float32)')
    add('--rounds', type=int, default=20, help='rounds of timing (default: 20)')
    what = f'stitches that are also timed end to end {SOME}'
    add('--check', nargs='+', type=int, metavar='ID', help=what)
    add('--sort', choices=('id', *UNITS), default='flops', help='(default: flops)')
    what = """also print the cost groups of the resource-constrained sampler with this
        step in GFLOPs (default: the sampler's own, about 13 groups)"""
    add('--groups', type=float, nargs='?', const=0, metavar='STEP', help=what)
    add('--kind', nargs='+', help='show only these kinds, such as anchor FS SF')
    what = """show only stitches on the Pareto front of these results: stitches.json of
        a test, or stitch_scores.json of a training"""
    add('--results', help=what)
    what = 'output folder (default: work_dirs/NAME OF THE CONFIG)'
    add('--out', type=Path, help=what)
    parser.add_cfg_options()
    args = parser.parse_args()
    for name in ('batch', 'rounds'):
        check(getattr(args, name) > 0, f'--{name}', getattr(args, name), '1 or more')
    for cost in ('latency', 'memory'):
        measured = args.sort != cost or getattr(args, cost)
        check(measured, '--sort', cost, f'--{cost} as well, to measure it')
    args.shape = [parse_size(size, '--shape') for size in args.shape or ()]
    on_gpu = args.device.startswith('cuda')
    check(args.latency or not args.compile, '--compile', True, '--latency as well')
    check(on_gpu or not args.memory, '--memory', True, '--device cuda, a GPU')
    return args


def check_table(
    space: StitchingSpace, checks: Sequence[LatencyCheck], setup: str
) -> Table:
    table = Table(title=f'Latency ({setup}), predicted and measured end to end')
    for name in ('id', 'route', 'predicted (ms)', 'measured (ms)', 'error', 'spread'):
        table.add_column(name, justify='left' if name == 'route' else 'right')
    for c in checks:
        cells = f'{c.predicted:.2f}', f'{c.measured:.2f}', f'{c.error:+.1%}'
        route = space.describe(space[c.stitch_id])
        table.add_row(str(c.stitch_id), route, *cells, f'{c.spread:.1%}')
    return table


def group_table(costs: StitchTable, step: float) -> Table:
    """Return a table of stitches per FLOPs group and their draw rates (figure 5).

    ``step`` is in GFLOPs, or 0 for the sampler's own.
    """
    flops = costs.column('flops')
    step = step * 1e9 or default_step(flops)
    groups = group_by_cost(flops, step)
    table = Table(title=f'Groups of {step / 1e9:.4g} GFLOPs, drawn equally often')
    for name in ('GFLOPs', 'stitches', 'of all', 'draws of each'):
        table.add_column(name, justify='right')
    for ids in groups:
        low, high = flops[ids[0]] / 1e9, flops[ids[-1]] / 1e9
        drawn = 1 / len(groups) / len(ids)
        share = f'{len(ids) / len(flops):.1%}'
        table.add_row(f'{low:.4g} - {high:.4g}', str(len(ids)), share, f'{drawn:.2%}')
    return table


def main() -> None:
    args = parse_args()

    import torch

    from snnet_mm.costs import (
        cost_table,
        measure_latency,
        measure_memory,
        measuring_setup,
    )
    from snnet_mm.evaluation import stitch_table, wide_console
    from snnet_mm.models import compile_stitches, find_stitched_backbone
    from snnet_mm.models.init_model import init_model
    from snnet_mm.utils import load_config

    # Validate all options first, because measuring takes minutes.
    out = args.out or Path('work_dirs', Path(args.config).stem)
    check_writable(out, 'option: --out')
    cfg = load_config(args.config, args.cfg_options)
    # Costs do not depend on the weights.
    model = init_model(cfg, None, device=args.device)
    model = model.to(dtype=getattr(torch, args.dtype))
    space = find_stitched_backbone(model).space
    if args.compile:
        compile_stitches(model)
        args.check = args.check or middle_stitches(space)
    kinds = {stitch.kind for stitch in space}
    for kind in args.kind or ():
        check(kind in kinds, '--kind', kind, sorted(kinds))
    ids = [s.id for s in space if s.kind in (args.kind or kinds)]
    if args.results:
        front = {row.id for row in StitchTable.read(args.results, space).front()}
        ids = [i for i in ids if i in front]
    console, tables, timed = wide_console(), [], []
    for shape in args.shape or [(cfg.get('test_cfg') or {}).get('input_size')]:
        shape = shape and tuple(shape)
        costs, latency, memory, checks = cost_table(model, shape), None, None, ()
        if args.latency:
            given = args.batch, args.rounds, args.check
            latency, checks, _ = measure_latency(model, shape, *given, progress=True)
        if args.memory:
            memory = measure_memory(model, shape, args.batch, progress=True)
        if latency or memory:
            setup = measuring_setup(model, args.batch)
            costs = costs.measured(setup, latency, memory)
        tables.append(costs)
        timed += [c._asdict() for c in checks]
        StitchTable.merge(*tables).save(out / 'costs.json', checks=timed)
        if args.sort != 'id':
            column = costs.column(args.sort)
            ids.sort(key=lambda i: (column[i], i))
        console.print(stitch_table(replace(costs, rows=[costs[i] for i in ids])))
        if args.groups is not None:
            console.print(group_table(costs, args.groups))
        if checks:
            console.print(check_table(space, checks, str(costs.shared('setup'))))
    console.print(f'Wrote costs.json to {out}', soft_wrap=True)


if __name__ == '__main__':
    run_command(main)
