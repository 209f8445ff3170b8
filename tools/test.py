"""Test any stitches of a model: ``tools/test.py CONFIG CKPT --stitch-id N[,M...]``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from snnet_mm.stitching import parse_budget
from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    parse_size,
    run_command,
)

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Test (and eval) a model')
    add = parser.add_argument
    add('config', help='test config file path')
    add('checkpoint', help='checkpoint file')
    add_stitch_arguments(parser)
    add('--work-dir', help='the dir to save logs and the table of stitches')
    add('--show-dir', help='dir where painted images will be saved')
    parser.add_runner_options()
    add('--tta', action='store_true', help='test time augmentation')
    args = parser.parse_args()
    for budget in args.budget.split(',') if args.budget else ():
        parse_budget(budget)  # ids and words are for --stitch-id
    return args


def add_stitch_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('which stitches, on how much data')
    chosen = group.add_mutually_exclusive_group()
    what = """stitches to test: 'all', 'anchors', 'pareto' (of --results), or ids such
        as 0,5,12; by default what the config says"""
    chosen.add_argument('--stitch-id', help=what)
    what = """test the best stitch within a budget such as 120G, 60M or 25ms; several
        budgets with commas; measured best with --results, else a guess"""
    chosen.add_argument('--budget', help=what)
    what = """test at these input sizes, such as 126x182 168x238, the largest of which
        the pipeline must give: a report for each, and the joint front"""
    group.add_argument('--sizes', nargs='+', metavar='HxW', help=what)
    what = """stitches.json of an earlier test, or stitch_scores.json of a training by
        importance, to choose stitches by"""
    group.add_argument('--results', help=what)
    what = """costs.json of stitch_table.py with measured costs, for budgets in ms;
        they go into the report too; one for each of --sizes, or of precisions, such as
        costs_fp32.json costs_int8.json: a budget then buys a stitch in one of them"""
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
        '--recalibrate-bn': "estimate the heads' batch norm statistics anew for every "
        'stitch, on so many training images',
    }.items():
        group.add_argument(option, type=int, help=words)
    what = 'go on after the last finished pass of an interrupted test'
    group.add_argument('--resume', action='store_true', help=what)
    what = 'leave out images that cannot be loaded, and list them'
    group.add_argument('--skip-broken', action='store_true', help=what)


def set_stitches(cfg: Config, args: argparse.Namespace) -> None:
    """Test stitches as the command line says, in the loop that can."""
    same = ('results', 'costs', 'lower_is_better', 'stitches_per_pass', 'limit')
    same += ('screen', 'keep', 'recalibrate_bn', 'metric')
    settings = {name: getattr(args, name) for name in same}
    settings['sizes'] = args.sizes and [parse_size(s, '--sizes') for s in args.sizes]
    settings |= dict(stitches=args.stitch_id or args.budget, resume=args.resume or None)
    settings = {key: value for key, value in settings.items() if value is not None}
    if settings and not tests_stitches(cfg):
        cfg.test_cfg = dict(type='StitchTestLoop')
    cfg.test_cfg.update(settings)
    screened = args.keep is None or cfg.test_cfg.get('screen') is not None
    check(screened, '--keep', args.keep, 'with --screen (config key: test_cfg.screen)')


def tests_stitches(cfg: Config) -> bool:
    # mmpretrain's own configs have test_cfg=dict().
    return cfg.test_cfg.get('type') == 'StitchTestLoop'


def set_visualization(cfg: Config, folder: str) -> None:
    """Draw predictions: the loop of a stitched model does it, else mm's hook."""
    if tests_stitches(cfg):
        cfg.test_cfg.show_dir = folder
        return
    hook = cfg.get('default_hooks', {}).get('visualization')
    check(hook, 'default_hooks.visualization', hook, 'a hook, for --show-dir')
    if cfg.get('default_scope') == 'mmpretrain':
        hook.enable, hook.out_dir = True, folder
    else:
        hook.draw, cfg.visualizer.save_dir = True, folder


def set_augmentation(cfg: Config) -> None:
    """Average predictions over the config's augmentations."""
    for key in ('tta_model', 'tta_pipeline'):
        check(cfg.get(key), key, cfg.get(key), 'one, for --tta')
    cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    cfg.tta_model.module = cfg.model
    cfg.model = cfg.tta_model


def main() -> None:
    args = parse_args()

    from snnet_mm.evaluation import BrokenImagesHook, evaluate_whole_model
    from snnet_mm.training import checked_runner
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    cfg.launcher, cfg.load_from = args.launcher, args.checkpoint
    default = cfg.get('work_dir') or f'work_dirs/{Path(args.config).stem}'
    cfg.work_dir = args.work_dir or default
    set_stitches(cfg, args)
    if args.show_dir is not None:
        set_visualization(cfg, args.show_dir)
    if args.tta:
        set_augmentation(cfg)
    check_file(args.checkpoint, 'argument: checkpoint')
    check_file(args.results, 'option: --results')
    for costs in args.costs or ():
        check_file(costs, 'option: --costs')
    with checked_runner(cfg, 'test', args.verbose, args.trust_checkpoint) as runner:
        runner.register_hook(BrokenImagesHook(args.skip_broken))
        if tests_stitches(cfg):
            runner.test()
        else:
            evaluate_whole_model(runner)


if __name__ == '__main__':
    run_command(main)
