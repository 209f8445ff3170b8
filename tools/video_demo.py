"""Predict a video, at a frame rate if wanted: ``video_demo.py VIDEO CONFIG CKPT``.

Every frame tells its stitch and the frames a second that predicting and drawing reach.
"""

from __future__ import annotations

import argparse
import os
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.runtime import BudgetController, fit_times
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


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Predict a video')
    add = parser.add_argument
    add('video', help='video file, webcam id, or folder of images')
    add('config', help='config file')
    add('checkpoint', help='checkpoint file')
    add('--device', help='device (default: the best there is)')
    what = 'opacity of the prediction, above 0 to 1 (default: %(default)s)'
    add('--opacity', type=float, default=0.5, help=what)
    what = 'least score of a detection to be drawn (default: %(default)s)'
    add('--score-thr', type=float, default=0.3, help=what)
    add('--show', action='store_true', help='show it; q ends it')
    add('--output-file', type=Path, help='output video: .mp4, or .avi of JPEGs')
    what = """the stitch (default: the slow anchor); with --target-fps those to choose
        from: 'all' (default), 'anchors', or ids such as 0,5,12"""
    add('--stitch-id', help=what)
    what = """frames a second that predicting and drawing are to reach: stitches are
        switched as the load of the machine asks for"""
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


def main() -> None:
    args = parse_args()

    import cv2
    import torch

    from snnet_mm.inference.init_inferencer import draw_prediction, init_inferencer
    from snnet_mm.inference.init_model import check_stitches, init_model
    from snnet_mm.models import find_stitched_backbone, set_stitch
    from snnet_mm.utils import load_config

    times, used = [], Counter()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        frames, fps = open_video(args.video)
        frame = next(frames, None)
        known = 'video files with a frame, ids of cameras as 0, and folders of images'
        check(frame is not None, 'video', args.video, known)
        output = args.output_file
        write = open_output(output, fps, frame, stack) if output else None
        cfg, legend = load_config(args.config), {}
        check_file(args.checkpoint, 'argument: checkpoint')
        selection = Selection(args.stitch_id or 'all', args.results)
        check_stitches(cfg, selection)
        model = init_model(cfg, args.checkpoint, device=args.device)
        backbone = find_stitched_backbone(model)
        inferencer = init_inferencer(model)

        def draw() -> np.ndarray:
            settings = dict(score_thr=args.score_thr, legend=legend)
            return draw_prediction(inferencer, frame, args.opacity, **settings)

        controller = None
        if args.target_fps is not None:
            controller = init_controller(model, args.target_fps, selection, draw)
        elif args.stitch_id is not None:
            ids = selection.select(backbone.space)
            several = 'one stitch; several are for --target-fps to choose from'
            check(len(ids) == 1, '--stitch-id', args.stitch_id, several)
            set_stitch(model, ids[0])
        try:
            while frame is not None:
                if controller is not None:
                    set_stitch(model, controller.stitch)
                begin = time.perf_counter()
                picture = draw()
                times.append((time.perf_counter() - begin) * 1000)
                if controller is not None:
                    controller.update(times[-1])
                stitch = backbone.active_stitch
                used[stitch.id] += 1
                fps = f'stitch {stitch.id}  {1000 / median(times[-10:]):.1f} fps'
                lines = [fps, backbone.space.describe(stitch)]
                picture = annotate(picture, lines, legend)
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
