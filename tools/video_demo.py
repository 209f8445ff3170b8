"""Predict a video, at a frame rate if wanted: ``video_demo.py VIDEO CONFIG CKPT``.

``video_demo.py VIDEO BUNDLE`` does so by exported stitches. Every frame tells its
stitch and the frames a second that predicting and drawing reach.
"""

from __future__ import annotations

import argparse
import os
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from snnet_mm.runtime import BudgetController, StitchRuntime, fit_times, paint
from snnet_mm.stitching import Selection
from snnet_mm.utils import (
    ToolParser,
    atomic_path,
    check,
    check_file,
    refusal,
    run_command,
)

if TYPE_CHECKING:
    from torch import nn


class Source(NamedTuple):
    """A model that predicts a video."""

    select: Callable[[], tuple[int, str]]  # the stitch of the next frame, its route
    draw: Callable[[np.ndarray], np.ndarray]  # BGR to BGR
    learn: Callable[[float], object]  # from the milliseconds of a frame
    legend: dict  # of the last frame


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Predict a video')
    add = parser.add_argument
    add('video', help='video file, webcam id, or folder of images')
    what = 'config file and checkpoint file, or folder of an exported bundle'
    add('model', nargs='+', help=what)
    what = 'device of a checkpoint (default: the best there is)'
    add('--device', help=what)
    what = 'opacity of the prediction, above 0 to 1 (default: %(default)s)'
    add('--opacity', type=float, default=0.5, help=what)
    what = 'least score of a detection to be drawn (default: %(default)s)'
    add('--score-thr', type=float, default=0.3, help=what)
    add('--show', action='store_true', help='show it; q ends it')
    add('--output-file', type=Path, help='output video: .mp4, or .avi of JPEGs')
    what = """the stitch (default: the slow anchor); with --target-fps those to choose
        from: 'all' (default), 'anchors', or ids such as 0,5,12"""
    add('--stitch-id', help=what)
    what = """frames a second that predicting and drawing are to reach (of a bundle:
        predicting): stitches are switched as the load of the machine asks for"""
    add('--target-fps', type=float, help=what)
    what = """stitches.json of tools/test.py: --target-fps chooses from its Pareto
        front, and knows which stitch is better"""
    add('--results', help=what)
    args = parser.parse_args()
    check(args.show or args.output_file, '--output-file', None, 'a file, or --show')
    check(0 < args.opacity <= 1, '--opacity', args.opacity, 'above 0 to 1')
    fps = args.target_fps
    check(fps is None or 0 < fps < float('inf'), '--target-fps', fps, 'above 0')
    check(fps or not args.results, '--results', args.results, 'with --target-fps')
    right = len(args.model) < 3
    check(right, 'model', args.model, 'CONFIG CKPT, or the folder of a bundle')
    return args


def open_video(video: str) -> tuple[Iterator[np.ndarray], float]:
    """Return frames of a video file, camera or folder, and their number a second."""
    import cv2

    from snnet_mm.inference.init_inferencer import list_images

    if os.path.isdir(video):
        return map(read_image, list_images(video)), 0
    capture = cv2.VideoCapture(int(video) if video.isdigit() else video)
    frames = (frame for _, frame in iter(capture.read, (False, None)))
    return frames, capture.get(cv2.CAP_PROP_FPS)


def read_image(file: str) -> np.ndarray:
    import cv2

    image = cv2.imread(file)
    check(image is not None, 'video', file, 'image files')
    return image


def open_output(
    path: Path, fps: float, frame: np.ndarray, stack: ExitStack
) -> Callable[[np.ndarray], None]:
    """Return a function that writes a frame to a video, which the stack closes."""
    import cv2

    fps, size = fps or 25, frame.shape[1::-1]
    fourcc = cv2.VideoWriter.fourcc(*('mp4v' if path.suffix == '.mp4' else 'MJPG'))
    temporary = stack.enter_context(atomic_path(path))
    writer = cv2.VideoWriter(str(temporary), fourcc, fps, size)
    stack.callback(writer.release)
    if not writer.isOpened():
        allowed = f'a video, .avi or .mp4, of {fps:g} fps and {size}'
        raise refusal('--output-file', str(path), allowed)
    # Pictures of small frames may be larger.
    return lambda picture: writer.write(cv2.resize(picture, size))


def init_controller(
    model: nn.Module,
    target_fps: float,
    selection: Selection,
    run: Callable[[], object],
) -> BudgetController:
    """Return a controller whose first guess comes from timing two stitches."""
    from snnet_mm.costs import cost_table
    from snnet_mm.models import find_stitched_backbone, set_stitch

    size = (model.cfg.get('test_cfg') or {}).get('input_size')
    costs = cost_table(model, size).column('flops')
    space = find_stitched_backbone(model).space
    ids = selection.select(space)
    scores, higher_is_better = None, True
    for results in selection.results:
        known, higher_is_better = results.scores(), results.higher_is_better
        ids = [i for i in ids if i in known]
        check(ids, '--stitch-id', [*selection.ids], known)
        scores = {i: known[i] for i in ids}
    costs = {i: costs[i] for i in ids}
    measured = {}
    for stitch_id in {min(costs, key=costs.get), max(costs, key=costs.get)}:
        set_stitch(model, stitch_id)
        run()
        measured[stitch_id] = median(timeit.repeat(run, number=1)) * 1000
    load = None
    try:
        costs, load = fit_times(costs, measured), 1
    except ValueError:  # one stitch, or a machine too busy to tell them apart
        print('the first times tell nothing; starting with the cheapest stitch')
    goal = dict(target_fps=target_fps, load=load)
    return BudgetController(costs, scores, higher_is_better, **goal)


def annotate(frame: np.ndarray, lines: list[str], legend: dict) -> np.ndarray:
    """Write lines into the top left corner of a frame, and a legend at its foot."""
    import cv2

    from snnet_mm.evaluation import add_legend

    frame, scale = np.ascontiguousarray(frame), max(frame.shape[0] / 900, 0.3)
    for n, line in enumerate(lines, start=1):
        place = (4, round(30 * scale * n))
        for colour, width in ((0, 0, 0), 3), ((255, 255, 255), 1):
            font = cv2.FONT_HERSHEY_SIMPLEX
            cv2.putText(frame, line, place, font, scale, colour, width, cv2.LINE_AA)
    foot = add_legend(frame[:0], legend)[: frame.shape[0] // 6]
    frame[frame.shape[0] - len(foot) :] = foot
    return frame


def of_bundle(args: argparse.Namespace) -> Source:
    """Return how the stitches of a bundle predict and draw a frame."""
    for key in ('results', 'device'):
        value = getattr(args, key)
        check(value is None, f'--{key}', value, 'none with a bundle')
    runtime = StitchRuntime(args.model[0])
    manifest, legend = runtime.manifest, {}
    classes, palette = manifest['classes'], manifest['palette']
    heads = all(step['step'] != 'heads' for step in manifest['caller']['after'])
    allowed = 'detectors whose heads are graphs: docs/how_to/export.md'
    check(heads, 'model', args.model[0], allowed)
    if args.target_fps is not None:
        check(not args.stitch_id, '--stitch-id', args.stitch_id, 'none here')
        runtime.hold(args.target_fps)
    elif args.stitch_id is not None:
        one = args.stitch_id.isdecimal()
        check(one, '--stitch-id', args.stitch_id, 'one id, as of a bundle')
        runtime.set_stitch(int(args.stitch_id))

    def select() -> tuple[int, str]:
        stitch = runtime.active_stitch
        return stitch, runtime.stitches[stitch]['route']

    def draw(frame: np.ndarray) -> np.ndarray:
        image = np.ascontiguousarray(frame[..., ::-1])
        found, how = runtime(image), (args.opacity, args.score_thr)
        if manifest['task'] == 'segmentation' and palette:
            legend.update((classes[i], palette[i]) for i in np.unique(found))
        return paint(image, found, classes, palette, *how)[..., ::-1]

    return Source(select, draw, lambda ms: None, legend)


def of_checkpoint(args: argparse.Namespace, frame: np.ndarray) -> Source:
    """Return how the stitches of a checkpoint predict and draw a frame."""
    from snnet_mm.inference.init_inferencer import draw_prediction, init_inferencer
    from snnet_mm.inference.init_model import init_model, space_of
    from snnet_mm.models import find_stitched_backbone, set_stitch
    from snnet_mm.utils import load_config

    config, checkpoint = args.model
    cfg, legend = load_config(config), {}
    check_file(checkpoint, 'argument: checkpoint')
    selection = Selection(args.stitch_id or 'all', args.results)
    selection.check(space_of(cfg))
    model = init_model(cfg, checkpoint, device=args.device)
    backbone = find_stitched_backbone(model)
    inferencer = init_inferencer(model)

    def draw(frame: np.ndarray) -> np.ndarray:
        settings = dict(score_thr=args.score_thr, legend=legend)
        return draw_prediction(inferencer, frame, args.opacity, **settings)

    controller = None
    if args.target_fps is not None:
        run = partial(draw, frame)
        controller = init_controller(model, args.target_fps, selection, run)
    elif args.stitch_id is not None:
        ids = selection.select(backbone.space)
        several = 'one stitch; several are for --target-fps to choose from'
        check(len(ids) == 1, '--stitch-id', args.stitch_id, several)
        set_stitch(model, ids[0])

    def select() -> tuple[int, str]:
        if controller is not None:
            set_stitch(model, controller.stitch)
        stitch = backbone.active_stitch
        return stitch.id, backbone.space.describe(stitch)

    learn = (lambda ms: None) if controller is None else controller.update
    return Source(select, draw, learn, legend)


def main() -> None:
    args = parse_args()

    import cv2

    times, used = [], Counter()
    with ExitStack() as stack:
        frames, fps = open_video(args.video)
        frame = next(frames, None)
        known = 'video files with a frame, ids of cameras as 0, and folders of images'
        check(frame is not None, 'video', args.video, known)
        output = args.output_file
        write = open_output(output, fps, frame, stack) if output else None
        bundle = len(args.model) == 1
        source = of_bundle(args) if bundle else of_checkpoint(args, frame)
        try:
            while frame is not None:
                stitch, route = source.select()
                begin = time.perf_counter()
                picture = source.draw(frame)
                times.append((time.perf_counter() - begin) * 1000)
                source.learn(times[-1])
                used[stitch] += 1
                fps = f'stitch {stitch}  {1000 / median(times[-10:]):.1f} fps'
                picture = annotate(picture, [fps, route], source.legend)
                if write is not None:
                    write(picture)
                if args.show:
                    cv2.imshow('video_demo', picture)
                    if cv2.waitKey(1) & 0xFF == ord('q'):
                        break
                frame = next(frames, None)
        except KeyboardInterrupt:  # how a camera is usually ended: keep what there is
            print()
    print(
        f'{len(times)} frames; predicting and drawing one takes '
        f'{median(times):.1f} ms in the median: {1000 / median(times):.1f} fps'
    )
    print('frames by stitch:', ', '.join(f'{i}: {n}' for i, n in used.items()))


if __name__ == '__main__':
    run_command(main)
