"""Predict a folder of images: ``tools/predict.py BUNDLE FOLDER --out DIR``.

``tools/predict.py CONFIG CKPT FOLDER --out DIR`` uses mm's inferencer instead.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from snnet_mm.runtime import Deadline, StitchRuntime, predict_folder
from snnet_mm.runtime.folder import Summary, parse_duration
from snnet_mm.stitching import Selection
from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    check_writable,
    run_command,
    work_dir_lock,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Predict images of a folder or a list')
    add = parser.add_argument
    what = 'folder of an exported bundle, or a config file and a checkpoint file'
    add('model', nargs='+', help=what)
    add('source', help='folder of images, or text file with one path per line')
    add('--out', type=Path, required=True, help='output folder')
    add('--batch-size', type=int, default=8, help='default: %(default)s')
    what = 'processes that Ray Data feeds, of a bundle; needs the extra ray'
    which_parts = parser.add_mutually_exclusive_group()
    which_parts.add_argument('--ray', type=int, metavar='N', help=what)
    what = 'part of the images, such as 2/4; parts share the output folder'
    which_parts.add_argument('--shard', default='1/1', metavar='I/N', help=what)
    add('--address', help='Ray cluster of --ray (default: one on this machine)')
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--stitch-id', type=int, help='stitch to run')
    which.add_argument('--budget', help='run the best stitch within it, such as 25ms')
    what = 'switch stitches such that all is done in this time, such as 8h, 30m or 90s'
    which.add_argument('--deadline', help=what)
    what = 'stitches.json of a test, to choose by; of a bundle its manifest is used'
    add('--results', help=what)
    add('--precision', help='precision of the graphs of a bundle')
    add('--threads', type=int, help='threads of a call of a bundle')
    add('--device', help='device of a checkpoint (default: the best there is)')
    return parser.parse_args()


def of_bundle(args: argparse.Namespace) -> tuple[Callable, str, tuple, dict, Callable]:
    """Return predictor, task, classes, costs and stitch setter of a bundle."""
    check(args.results is None, '--results', args.results, 'none with a bundle')
    runtime = StitchRuntime(args.model[0], args.threads, precision=args.precision)
    manifest = runtime.manifest
    if args.stitch_id is not None:
        runtime.set_stitch(args.stitch_id)
    if args.budget is not None:
        runtime.set_budget(args.budget)
    costs = runtime.front() if args.deadline else {}
    args.channels = manifest['input']['shape'][1]
    about = manifest['task'], tuple(manifest['classes'])
    return (
        runtime.predict_batch,
        *about,
        costs,
        lambda key: runtime.set_stitch(*key[::-1]),
    )


def of_checkpoint(args: argparse.Namespace) -> tuple:
    """Return predictor, task, classes, costs and stitch setter of a checkpoint."""
    from snnet_mm.anchors import image_channels
    from snnet_mm.costs import cost_table
    from snnet_mm.inference.init_inferencer import init_inferencer, predict_arrays
    from snnet_mm.inference.init_model import init_model
    from snnet_mm.models import find_stitched_backbone, set_stitch
    from snnet_mm.tasks import task_of
    from snnet_mm.utils import load_config

    config, checkpoint = args.model
    for key in ('precision', 'threads'):
        value = getattr(args, key)
        check(value is None, f'--{key}', value, 'none with a config and a checkpoint')
    cfg = load_config(config)
    check_file(checkpoint, 'argument: checkpoint')
    chosen = args.budget if args.stitch_id is None else args.stitch_id
    chosen, selection = 'pareto' if args.deadline else chosen, None
    if chosen is not None:
        selection = Selection(chosen, args.results)
    model, costs = init_model(cfg, checkpoint, device=args.device), {}
    if selection is not None:
        space = find_stitched_backbone(model).space
        size = (cfg.get('test_cfg') or {}).get('input_size')
        table = cost_table(model, size) if args.stitch_id is None else None
        ids = selection.select(space, table)
        set_stitch(model, ids[0])
        if args.deadline:
            costs = {
                i: table[i].flops for i in sorted(ids, key=lambda i: table[i].flops)
            }
    args.channels = image_channels(model)
    call = partial(predict_arrays, init_inferencer(model))
    classes = tuple((model.dataset_meta or {}).get('classes') or ())
    return call, task_of(model).name, classes, costs, partial(set_stitch, model)


def predict_on_ray(args: argparse.Namespace) -> None:
    """Predict in several Ray processes, each of which loads the bundle."""
    right = len(args.model) == 1 and args.ray > 0 and args.deadline is None
    allowed = 'whole numbers from 1, with a bundle and without --deadline'
    check(right, '--ray', args.ray, allowed)
    from snnet_mm.serving import predict_folder_on_ray, start_ray

    _, *about, _, _ = of_bundle(args)
    check(args.channels == 3, '--ray', args.ray, 'models of images of three channels')
    settings = args.source, args.out, args.batch_size, args.ray
    # Ray Data needs one CPU in addition to those of the workers.
    start_ray(args.ray + 1, args.address)
    with work_dir_lock(args.out, 'prediction_1of1', '--out'):
        build = lambda: of_bundle(args)[0]  # noqa: E731
        done = predict_folder_on_ray(build, *about, *settings)
    report(done, args.out)


def report(done: Summary, out: Path) -> None:
    print(f'Predicted {done.predicted} images, {done.before} were done before')
    if done.unreadable:
        print(f'Skipped {len(done.unreadable)}, listed in unreadable*.txt')
    print(f'Wrote to {out}')


def main() -> None:
    args = parse_args()
    number = len(args.model)
    check(number < 3, 'model', args.model, 'a bundle, or a config and a checkpoint')
    parts = args.shard.split('/')
    right = len(parts) == 2 and all(part.isdecimal() for part in parts)
    check(right, '--shard', args.shard, '1/n to n/n')
    shard = tuple(map(int, parts))
    seconds = parse_duration(args.deadline) if args.deadline else None
    check_writable(args.out, 'option: --out')
    if args.ray is not None:
        predict_on_ray(args)
        return
    made = (of_bundle if number == 1 else of_checkpoint)(args)
    predict, task, classes, costs, switch = made
    columns = '{task.description}', BarColumn(), MofNCompleteColumn()
    columns += TimeElapsedColumn(), 'left', TimeRemainingColumn()
    with (
        work_dir_lock(args.out, f'prediction_{shard[0]}of{shard[1]}', '--out'),
        Progress(*columns) as progress,
    ):
        bar = progress.add_task('Predicting')
        deadline = Deadline(seconds, costs, switch) if args.deadline else None
        done = predict_folder(
            predict,
            task,
            classes,
            args.source,
            args.out,
            args.batch_size,
            shard,
            deadline,
            lambda done, total: progress.update(bar, completed=done, total=total),
            args.channels,
        )
    report(done, args.out)


if __name__ == '__main__':
    run_command(main)
