"""Give a trained model smaller budgets: ``tools/make_elastic.py CONFIG CKPT``."""

import argparse
from pathlib import Path

from snnet_mm.utils import ToolParser, check_file, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(
        description='Give a trained model smaller budgets. Each budget skips some '
        'blocks, and one linear map replaces each run of skipped blocks. The model '
        'itself is not changed.'
    )
    add = parser.add_argument
    add('config', help='config of a trained model of mmseg, mmdet or mmpretrain')
    add('checkpoint', help='its checkpoint')
    what = 'output folder (default: work_dirs/NAME_elastic)'
    add('--work-dir', type=Path, help=what)
    what = 'folder of unlabelled images (default: the training images of the config)'
    add('--images', help=what)
    what = 'images that the maps are fitted on (default: 64; for a classifier 500)'
    add('--num-images', type=int, help=what)
    which = parser.add_mutually_exclusive_group()
    what = """number of budgets below the model (default: %(default)s), or budgets such
        as 10ms,20ms on this device or 3G"""
    which.add_argument('--budgets', default='5', help=what)
    what = 'numbers of blocks to keep, such as 10,8,6,4'
    which.add_argument('--keep', help=what)
    what = 'blocks that each budget keeps, such as 0,1,2,4,5 1,4'
    which.add_argument('--blocks', nargs='+', help=what)
    what = """iterations that tune the maps on the training images, or on
        --images; the model stays as it is (default: %(default)s)"""
    add('--iters', type=int, default=0, help=what)
    what = 'learning rate of tuning (default: %(default)s)'
    add('--rate', type=float, default=1e-4, help=what)
    what = 'write a checkpoint that holds the model, too'
    add('--whole', action='store_true', help=what)
    add('--seed', type=int, default=0, help='seed (default: %(default)s)')
    add('--device', help='device (default: the best there is)')
    parser.add_cfg_options()
    args = parser.parse_args()
    if args.work_dir is None:
        args.work_dir = Path('work_dirs', f'{Path(args.config).stem}_elastic')
    return args


def numbers(text: str | None) -> list[int]:
    return [int(n) for n in text.split(',')] if text else []


def main() -> None:
    args = parse_args()

    from snnet_mm.elastic import make_elastic

    check_file(args.checkpoint, 'argument: checkpoint')
    make_elastic(
        args.config,
        args.checkpoint,
        args.work_dir,
        images=args.images,
        budgets=args.budgets,
        keep=numbers(args.keep),
        blocks=[numbers(text) for text in args.blocks or ()],
        iters=args.iters,
        rate=args.rate,
        num_images=args.num_images,
        whole=args.whole,
        seed=args.seed,
        device=args.device,
        cfg_options=args.cfg_options,
    )


if __name__ == '__main__':
    run_command(main)
