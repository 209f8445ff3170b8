"""Test any stitches of a model: ``tools/test.py CONFIG CKPT --stitch-id N[,M...]``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from snnet_mm.runtime.budgets import BUDGET_TEXT, is_budget
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    parse_size,
    run_command,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(
        description='Test an mm model, or sub-networks (stitches) of a stitched or '
        'elastic model'
    )
    add = parser.add_argument
    add('config', help='config file')
    add('checkpoint', help='checkpoint file')
    add_stitch_arguments(parser)
    add('--work-dir', help='folder for logs and the table of stitches')
    add('--show-dir', help='folder for images with drawn predictions')
    parser.add_runner_options()
    what = 'compile every stitch by torch.compile, for GPUs'
    add('--compile', action='store_true', help=what)
    add('--tta', action='store_true', help='use test-time augmentation')
    args = parser.parse_args()
    for part in args.budget.split(',') if args.budget else ():
        # The test loop parses the numbers; ids are for --stitch-id.
        check(is_budget(part.strip()), '--budget', part, BUDGET_TEXT)
    return args


def add_stitch_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('stitches and data')
    chosen = group.add_mutually_exclusive_group()
    what = """stitches (sub-networks) to test: 'all', 'anchors' (the networks that were
        stitched), 'pareto' (the front of --results), or ids such as 0,5,12 (default:
        test_cfg.stitches of the config)"""
    chosen.add_argument('--stitch-id', help=what)
    what = """test the best stitch within a budget, such as 120G (multiply-accumulates),
        50%% or 25ms, or within several, such as 60G,120G; --results ranks
        the stitches and is required for elastic models; without it, stitched models
        are ranked by a guess from FLOPs"""
    chosen.add_argument('--budget', help=what)
    what = """input sizes to test at (height x width), such as 126x182 168x238, no
        larger than the test pipeline's; writes a report for each, and the Pareto
        front over all sizes, to WORK_DIR/sizes"""
    group.add_argument('--sizes', nargs='+', metavar='HxW', help=what)
    what = """results to rank the stitches by: stitches.json of an earlier test;
        costs.json of stitch_table.py adds milliseconds; see choosing.md for others"""
    group.add_argument('--results', nargs='+', metavar='FILE', help=what)
    what = 'metric to rank by, such as mIoU or RMSE; recorded in stitches.json'
    group.add_argument('--metric', help=what)
    what = """metrics where lower is better, or 'none'; required for metrics whose
        direction is unknown"""
    group.add_argument('--lower-is-better', nargs='+', metavar='METRIC', help=what)
    for option, words in {
        '--stitches-per-pass': 'maximum number of stitches in one pass over the data',
        '--limit': 'test on this many evenly spaced images',
    }.items():
        group.add_argument(option, type=int, help=words)
    what = 'resume an interrupted test: skip the stitches that are done'
    group.add_argument('--resume', action='store_true', help=what)


def main() -> None:
    args = parse_args()

    from snnet_mm.training import run
    from snnet_mm.utils import launched_rank, runner_config

    for path in args.results or ():
        check_file(path, 'option: --results')
    sizes = [parse_size(size, '--sizes') for size in args.sizes or ()]
    given = args.config, args.checkpoint, args.work_dir, args.cfg_options
    names = 'results', 'metric', 'lower_is_better', 'stitches_per_pass', 'limit'
    test = partial(
        run.test,
        *given,
        tta=args.tta,
        compile=args.compile,
        launcher=args.launcher,
        verbose=args.verbose,
        trust=args.trust_checkpoint,
        stitches=args.stitch_id or args.budget,
        resume=args.resume or None,
        **{name: getattr(args, name) for name in names},
    )
    if not sizes:
        test(show_dir=args.show_dir)
        return
    cfg = runner_config(args.config, args.work_dir, args.cfg_options)
    tables, joint = [], Path(cfg.work_dir, 'sizes')
    for size, name in zip(sizes, args.sizes, strict=True):
        show_dir = args.show_dir and str(Path(args.show_dir, name))
        runner = test(show_dir=show_dir, resize=size, out_dir=str(joint / name))
        tables.append(run.results_of(runner))
    if launched_rank(args.launcher) == 0:
        report_sizes(StitchTable.merge(*tables), joint)


def report_sizes(table: StitchTable, folder: Path) -> None:
    """Print and write the joint front of stitches at several sizes."""
    from snnet_mm.evaluation import plot_pareto, stitch_table, wide_console

    table.save(folder / 'stitches.json')
    plot_pareto(table, folder / 'pareto.png')
    wide_console().print(stitch_table(replace(table, rows=table.front())))
    print(f'Wrote stitches.json and pareto.png of all sizes to {folder}')


if __name__ == '__main__':
    run_command(main)
