"""Test any stitches of a model: ``tools/test.py CONFIG CKPT --stitch-id N[,M...]``."""

from __future__ import annotations

import argparse

from snnet_mm.runtime.budgets import BUDGETS, is_budget
from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    parse_size,
    run_command,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Test stitches, or a model without stitches')
    add = parser.add_argument
    add('config', help='test config file path')
    add('checkpoint', help='checkpoint file')
    add_stitch_arguments(parser)
    add('--work-dir', help='the dir to save logs and the table of stitches')
    add('--show-dir', help='dir where painted images will be saved')
    parser.add_runner_options()
    add('--tta', action='store_true', help='test time augmentation')
    args = parser.parse_args()
    for part in args.budget.split(',') if args.budget else ():
        check(is_budget(part), '--budget', part, BUDGETS)  # ids are for --stitch-id
    return args


def add_stitch_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('which stitches, on how much data')
    chosen = group.add_mutually_exclusive_group()
    what = """stitches to test: 'all', 'anchors', 'pareto' (of --results), or ids such
        as 0,5,12; by default what the config says"""
    chosen.add_argument('--stitch-id', help=what)
    what = """test the best stitch within a budget such as 120G, 50%% or 25ms; several
        budgets with commas; measured best with --results, else a guess"""
    chosen.add_argument('--budget', help=what)
    what = """test at these input sizes, such as 126x182 168x238, the largest of which
        the pipeline must give: a report for each, and the joint front"""
    group.add_argument('--sizes', nargs='+', metavar='HxW', help=what)
    what = """stitches.json of an earlier test, or stitch_scores.json of a training by
        importance, to choose stitches by"""
    group.add_argument('--results', help=what)
    what = """costs.json of stitch_table.py with measured costs, for budgets in ms;
        they go into the report too; several for --sizes"""
    group.add_argument('--costs', nargs='+', help=what)
    what = 'metric that ranks stitches, in stitches.json too (mIoU, RMSE, box AP, ...)'
    group.add_argument('--metric', help=what)
    what = """metrics that are better when lower, none if all are when higher; asked
        for where that is not known of a metric"""
    group.add_argument('--lower-is-better', nargs='+', metavar='METRIC', help=what)
    for option, words in {
        '--stitches-per-pass': 'evaluate at most so many stitches in one pass',
        '--limit': 'test on so many images, evenly spread over the data',
        '--screen': 'screen the stitches on so many images, then test only the best of '
        'every budget group, and the anchors, on all',
        '--keep': 'how many stitches of a budget group pass the screening (3)',
    }.items():
        group.add_argument(option, type=int, help=words)
    what = 'go on after the last finished pass of an interrupted test'
    group.add_argument('--resume', action='store_true', help=what)


def main() -> None:
    args = parse_args()

    from snnet_mm.training import run

    check_file(args.results, 'option: --results')
    for costs in args.costs or ():
        check_file(costs, 'option: --costs')
    same = ('results', 'costs', 'lower_is_better', 'stitches_per_pass', 'limit')
    same += ('screen', 'keep', 'metric')
    run.test(
        args.config,
        args.checkpoint,
        args.work_dir,
        args.cfg_options,
        show_dir=args.show_dir,
        tta=args.tta,
        launcher=args.launcher,
        verbose=args.verbose,
        trust=args.trust_checkpoint,
        stitches=args.stitch_id or args.budget,
        resume=args.resume or None,
        sizes=args.sizes and [parse_size(size, '--sizes') for size in args.sizes],
        **{name: getattr(args, name) for name in same},
    )


if __name__ == '__main__':
    run_command(main)
