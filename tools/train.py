"""Train a model: ``tools/train.py CONFIG``, with OpenMMLab's usual flags."""

import argparse
from pathlib import Path

from snnet_mm.utils import ToolParser, run_command, tool_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Train the model of a config')
    add = parser.add_argument
    add('config', help='config file')
    add('--work-dir', help='folder for logs and checkpoints')
    what = 'resume from the latest checkpoint in --work-dir'
    add('--resume', action='store_true', help=what)
    what = 'use automatic mixed precision (bfloat16 on CPUs)'
    add('--amp', action='store_true', help=what)
    what = """number of iterations; the learning rate schedule is rescaled, also when
        resuming"""
    add('--iters', type=int, help=what)
    add('--epochs', type=int, help='number of epochs, for configs that count them')
    what = 'scale the learning rate to the batch size (auto_scale_lr of the config)'
    add('--auto-scale-lr', action='store_true', help=what)
    parser.add_runner_options()
    what = """keep the hooks of the config; by default, hooks are added that write
        checkpoints atomically, make resuming exact, and check the training"""
    add('--plain-hooks', action='store_true', help=what)
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    from snnet_mm.training import run
    from snnet_mm.utils import dicts_in, launched_rank

    runner = run.train(
        args.config,
        args.work_dir,
        args.cfg_options,
        iters=args.iters,
        epochs=args.epochs,
        resume=args.resume or None,
        amp=args.amp,
        scale_lr=args.auto_scale_lr,
        launcher=args.launcher,
        plain_hooks=args.plain_hooks,
        verbose=args.verbose,
        trust=args.trust_checkpoint,
    )
    last = runner.message_hub.runtime_info.get('last_ckpt')
    if last and launched_rank(args.launcher) == 0:
        dumped = Path(runner.work_dir, Path(args.config).name)  # with all options
        config = dumped if args.cfg_options and dumped.is_file() else args.config
        stitched = any('anchors' in part for part in dicts_in(runner.cfg.model))
        tool, more = 'make_elastic.py', ()
        if stitched:
            tool, more = 'test.py', ('--stitch-id', 'all')
        print(f'Checkpoint: {last}\nNext: {tool_command(tool, config, last, *more)}')


if __name__ == '__main__':
    run_command(main)
