"""Predict a folder of images: ``tools/predict.py BUNDLE FOLDER --out DIR``.

``tools/predict.py CONFIG CKPT FOLDER --out DIR`` uses mm's inferencer instead.
"""

import argparse
from functools import partial
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress

from snnet_mm.runtime import Deadline, Folder, StitchRuntime, predict_folder
from snnet_mm.runtime.folder import Predict
from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    check_writable,
    run_command,
    work_dir_lock,
)

SECONDS = dict(h=3600, m=60, s=1)


def parse_args() -> argparse.Namespace:
    usage = '%(prog)s [-h] --out DIR [options] {BUNDLE | CONFIG CKPT} SOURCE'
    parser = ToolParser('Predict the images of a folder or a list', usage=usage)
    add = parser.add_argument
    what = 'folder of a bundle (tools/export_stitch.py), or config and checkpoint'
    add('model', nargs='+', metavar='MODEL', help=what)
    add('source', help='folder of images, or text file with one path per line')
    add('--out', type=Path, required=True, help='output folder')
    what = 'images per batch (default: %(default)s)'
    add('--batch-size', type=int, default=8, help=what)
    what = 'run a bundle in N processes with Ray Data (needs the extra ray)'
    add('--ray', type=int, metavar='N', help=what)
    add('--address', help='Ray cluster of --ray (default: one on this machine)')
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--stitch-id', type=int, help='stitch (sub-network) to run')
    what = 'run the best stitch within this budget: 25ms, 2G or 50%%'
    which.add_argument('--budget', help=what)
    what = """finish within this time, such as 8h, 30m or 90s, by switching between the
        stitches of a bundle; not with --ray"""
    which.add_argument('--deadline', help=what)
    what = """predict all images again, also if the output folder has results of another
        model, stitch or precision"""
    add('--force', action='store_true', help=what)
    what = 'with a checkpoint: stitches.json of its test, for --budget'
    add('--results', help=what)
    add('--precision', help='with a bundle: use only graphs of this precision')
    add('--threads', type=int, help='with a bundle: CPU threads per call')
    what = 'with a checkpoint: device (default: cuda if available, else cpu)'
    add('--device', help=what)
    return parser.parse_args()


def parse_duration(text: str) -> float:
    """Parse the seconds of a duration such as ``'8h'``, ``'30m'`` or ``'90s'``."""
    number, factor = text[:-1], SECONDS.get(text[-1:])
    right = factor and number.replace('.', '', 1).isdecimal() and float(number) > 0
    check(right, '--deadline', text, "a positive duration such as '8h', '30m', '90s'")
    return float(number) * factor


def open_bundle(args: argparse.Namespace) -> StitchRuntime:
    """Open a bundle with the wanted stitch."""
    check(args.results is None, '--results', args.results, 'no value with a bundle')
    runtime = StitchRuntime(args.model[0], args.threads, precision=args.precision)
    if args.stitch_id is not None:
        runtime.set_stitch(args.stitch_id)
    if args.budget is not None:
        runtime.set_budget(args.budget)
    return runtime


def open_checkpoint(args: argparse.Namespace) -> tuple[Predict, tuple]:
    """Return the predictor of a checkpoint, and what a :class:`Folder` is told of it.

    That is the task, the classes, the channels of images, and the request.
    """
    import snnet_mm as sn
    from snnet_mm.anchors import image_channels
    from snnet_mm.inference.init_inferencer import init_inferencer, predict_arrays
    from snnet_mm.models import StitchedBackbone
    from snnet_mm.tasks import task_of
    from snnet_mm.utils.base_checkpoint import weights_digest
    from snnet_mm.utils.configs import digest_of_settings

    for key in ('precision', 'threads', 'deadline', 'ray'):
        value = getattr(args, key)
        check(value is None, f'--{key}', value, 'no value with a checkpoint')
    check_file(args.model[1], 'argument: checkpoint')
    model = sn.load(*args.model, args.stitch_id, args.device)
    if args.budget is not None:
        results = args.results and sn.Table.read(args.results)
        sn.set_budget(model, args.budget, results)
    classes = (model.dataset_meta or {}).get('classes') or ()
    stitched = [m for m in model.modules() if isinstance(m, StitchedBackbone)]
    request = dict(
        config=digest_of_settings(model.cfg),
        weights=weights_digest(model.state_dict())[:12],
        stitch=[backbone.active_stitch.id for backbone in stitched],
    )
    about = task_of(model).name, classes, image_channels(model), request
    return partial(predict_arrays, init_inferencer(model)), about


def main() -> None:
    args = parse_args()
    number, deadline = len(args.model), None
    check(number < 3, 'model', args.model, 'a bundle, or a config and a checkpoint')
    seconds = parse_duration(args.deadline) if args.deadline else None
    if args.ray is not None:
        right = args.ray > 0 and seconds is None
        check(right, '--ray', args.ray, 'a positive number, without --deadline')
    check_writable(args.out, 'option: --out')
    if number == 2:
        predict, about = open_checkpoint(args)
    else:
        runtime = open_bundle(args)
        predict, about = runtime.predict_batch, runtime.manifest
        request = runtime.request
        if seconds:  # of any length: a resumed run has less time left
            request |= dict(stitch='by --deadline', precision=args.precision)
        channels = about['input']['shape'][1]
        about = about['task'], about['classes'], channels, request
        deadline = Deadline(runtime, seconds) if seconds else None
    with work_dir_lock(args.out, 'prediction', '--out'):
        folder = Folder(args.source, args.out, *about, args.force)
        if args.ray is not None:
            from snnet_mm.serving import predict_folder_on_ray, start_ray

            # Ray Data needs one CPU in addition to those of the workers.
            start_ray(args.ray + 1, args.address)
            skipped = predict_folder_on_ray(predict, folder, args.batch_size, args.ray)
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
    check(len(skipped) < len(folder.images), 'source', args.source, expected)


if __name__ == '__main__':
    run_command(main)
