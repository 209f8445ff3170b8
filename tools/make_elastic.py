"""Give a trained model smaller budgets: ``tools/make_elastic.py CONFIG CKPT``."""

import argparse
from pathlib import Path

from snnet_mm.utils import ToolParser, check_file, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(
        description='Make a trained model elastic: add sub-networks for smaller '
        'compute budgets. Each runs some residual branches (attention, MLP) whole, '
        'some with part of their heads or neurons, and skips others. Least squares '
        'fits new output projections of narrow branches, and linear maps in place of '
        'skipped ones. Small budgets may run on smaller images, which the model '
        'resizes. The weights of the model do not change.'
    )
    add = parser.add_argument
    add('config', help='config of a trained model of mmseg, mmdet or mmpretrain')
    add('checkpoint', help='its checkpoint')
    what = 'output folder (default: work_dirs/NAME_elastic)'
    add('--work-dir', type=Path, help=what)
    what = 'folder of unlabelled images (default: training images of the config)'
    add('--images', help=what)
    what = 'number of images to fit on (default: 200; for a classifier 500)'
    add('--num-images', type=int, help=what)
    which = parser.add_mutually_exclusive_group()
    what = """budgets such as 50%%,25%% (of the network's FLOPs), 3G (multiply-
        accumulates), 20M (parameters) or 10ms,20ms (latency on this device, see --for);
        default: 75%%,50%%,33%%,25%%, or such shares of the branches alone if
        neck and head cost more than a quarter"""
    which.add_argument('--budgets', help=what)
    what = """explicit plan of a sub-network, such as '0.7x: 0:3/768 1:0/0': a factor of
        the image sides, if not 1, and heads/neurons that blocks 0 and 1 run ('1:0'
        skips a block of a backbone that is reduced by blocks); all other
        blocks run whole; repeat the option for further sub-networks"""
    which.add_argument('--plan', action='append', default=[], help=what)
    what = """factors of the height and width of the images among which
        sub-networks choose (default: 1 0.85 0.7 0.6 0.5); 1 for full size only"""
    add('--sizes', type=float, nargs='+', metavar='FACTOR', help=what)
    what = """what milliseconds are measured in: pytorch (default), or runtime, for the
        graphs of export_stitch.py in ONNX Runtime on this CPU, in fp32 and int8"""
    add('--for', choices=('pytorch', 'runtime'), default='pytorch', help=what)
    add('--threads', type=int, help='CPU threads of --for runtime (default: 1)')
    what = 'write one checkpoint that also contains the weights of the model'
    add('--whole', action='store_true', help=what)
    what = 'go on if no budget can save a fifth of the FLOPs'
    add('--force', action='store_true', help=what)
    add('--seed', type=int, default=0, help='seed (default: %(default)s)')
    add('--device', help='device (default: cuda if available, else cpu)')
    parser.add_cfg_options()
    args = parser.parse_args()
    if args.work_dir is None:
        args.work_dir = Path('work_dirs', f'{Path(args.config).stem}_elastic')
    return args


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
        plans=args.plan,
        sizes=args.sizes,
        num_images=args.num_images,
        whole=args.whole,
        force=args.force,
        seed=args.seed,
        device=args.device,
        cfg_options=args.cfg_options,
        runs_in=getattr(args, 'for'),
        threads=args.threads,
    )


if __name__ == '__main__':
    run_command(main)
