"""Predict a folder of images: ``tools/predict.py BUNDLE FOLDER --out DIR``."""

import argparse
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress

from snnet_mm.runtime import Deadline, Folder, StitchRuntime, predict_folder
from snnet_mm.runtime.device import ON_GPUS, PROVIDERS
from snnet_mm.utils import (
    ToolParser,
    check,
    check_writable,
    run_command,
    work_dir_lock,
)

SECONDS = dict(h=3600, m=60, s=1)


def parse_args() -> argparse.Namespace:
    parser = ToolParser('Predict the images of a folder or a list with a bundle')
    add = parser.add_argument
    add('bundle', help='folder of a bundle (tools/export_stitch.py)')
    add('source', help='folder of images, or text file with one path per line')
    add('--out', type=Path, required=True, help='output folder')
    what = 'images per batch (default: %(default)s)'
    add('--batch-size', type=int, default=8, help=what)
    what = 'run N processes with Ray Data (needs the extra ray)'
    add('--ray', type=int, metavar='N', help=what)
    add('--address', help='Ray cluster of --ray (default: one on this machine)')
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--stitch-id', type=int, help='stitch (sub-network) to run')
    what = 'run the best stitch within this budget: 25ms, 2G or 50%%'
    which.add_argument('--budget', help=what)
    what = """finish within this time, such as 8h, 30m or 90s, by switching between the
        stitches; not with --ray"""
    which.add_argument('--deadline', help=what)
    what = """predict all images again, also if the output folder has results of another
        bundle, stitch or precision"""
    add('--force', action='store_true', help=what)
    add('--precision', help='use only graphs of this precision')
    add('--threads', type=int, help='CPU threads per call')
    what = 'execution providers of onnxruntime in order of preference (default: cpu)'
    add('--provider', nargs='+', choices=PROVIDERS, default=('cpu',), help=what)
    return parser.parse_args()


def parse_duration(text: str) -> float:
    """Parse the seconds of a duration such as ``'8h'``, ``'30m'`` or ``'90s'``."""
    number, factor = text[:-1], SECONDS.get(text[-1:])
    right = factor and number.replace('.', '', 1).isdecimal() and float(number) > 0
    check(right, '--deadline', text, "a positive duration such as '8h', '30m', '90s'")
    return float(number) * factor


def open_bundle(args: argparse.Namespace) -> StitchRuntime:
    """Open a bundle with the wanted stitch."""
    options = dict(precision=args.precision, providers=args.provider)
    runtime = StitchRuntime(args.bundle, args.threads, **options)
    if args.stitch_id is not None:
        runtime.set_stitch(args.stitch_id)
    if args.budget is not None:
        runtime.set_budget(args.budget)
    return runtime


def main() -> None:
    args = parse_args()
    seconds = parse_duration(args.deadline) if args.deadline else None
    if args.ray is not None:
        right = args.ray > 0 and seconds is None
        check(right, '--ray', args.ray, 'a positive number, without --deadline')
    check_writable(args.out, 'option: --out')
    runtime = open_bundle(args)
    predict, manifest = runtime.predict_batch, runtime.manifest
    request = runtime.request
    if seconds:  # of any length: a resumed run has less time left
        request |= dict(stitch='by --deadline', precision=args.precision)
    about = manifest['task'], manifest['classes'], manifest['input']['shape'][1]
    deadline = Deadline(runtime, seconds) if seconds else None
    with work_dir_lock(args.out, 'prediction', '--out'):
        folder = Folder(args.source, args.out, *about, request, args.force)
        if args.ray is not None:
            from snnet_mm.serving import predict_folder_on_ray, start_ray

            # Ray Data needs one CPU in addition to those of the workers.
            start_ray(args.ray + 1, args.address)
            sizes = args.batch_size, args.ray, int(runtime.provider in ON_GPUS)
            skipped = predict_folder_on_ray(predict, folder, *sizes)
        else:
            columns, total = Progress.get_default_columns(), len(folder.left)
            with Progress(*columns, MofNCompleteColumn()) as progress:
                bar = progress.add_task('Predicting', total=total)

                def before(left: int) -> None:
                    progress.update(bar, completed=total - left)
                    if deadline is not None:
                        deadline.choose(left)

                skipped = predict_folder(predict, folder, args.batch_size, before)
                progress.update(bar, completed=total)
    left, done = len(folder.left), len(folder.images) - len(folder.left)
    print(f'Predicted {left - len(skipped)} images, {done} were done before')
    if skipped:
        print(f'Skipped {len(skipped)}, listed in unreadable.txt')
    print(f'Wrote to {args.out}')
    expected = f'images that can be predicted; all {len(skipped)} were skipped'
    check(len(skipped) < len(folder.images), 'argument: source', args.source, expected)


if __name__ == '__main__':
    run_command(main)
