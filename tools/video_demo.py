"""Predict a video, at a frame rate if wanted: ``video_demo.py VIDEO CONFIG CKPT``.

Every frame says which stitch painted it, and how many frames a second predicting and
painting reach.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

import cv2
import numpy as np
import torch
from torch import nn

from snnet_mm.apis import (
    cost_table,
    find_stitched_backbone,
    init_model,
    init_painter,
    set_stitch,
)
from snnet_mm.deploy import BudgetController, fit_times
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import atomic_path


def add_stitches(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        '--stitch-id',
        help='the stitch (default: the slow anchor); with --target-fps those to choose '
        "from: 'all' (default), 'anchors', or ids such as 0,5,12",
    )
    group.add_argument(
        '--target-fps',
        type=float,
        help='frames a second that predicting and painting are to reach: stitches are '
        'switched as the load of the machine asks for',
    )
    group.add_argument(
        '--results',
        help='stitches.json of tools/test.py: --target-fps chooses from its Pareto '
        'front, and knows which stitch is better',
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Predict a video')
    parser.add_argument('video', help='video file or webcam id')
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--device', help='device (default: the best there is)')
    parser.add_argument(
        '--palette',
        help="a data set of mmseg's, for its colours (default: the model's)",
    )
    parser.add_argument('--show', action='store_true', help='show it; q ends it')
    parser.add_argument(
        '--show-wait-time', type=int, default=1, help='wait time after a frame (ms)'
    )
    parser.add_argument('--output-file', help='output video')
    parser.add_argument('--output-fourcc', default='MJPG', help='its fourcc')
    parser.add_argument(
        '--output-fps', type=float, default=-1, help="its fps (default: the input's)"
    )
    for side in ('height', 'width'):
        parser.add_argument(
            f'--output-{side}',
            type=int,
            default=-1,
            help=f"its {side} (default: the input's)",
        )
    parser.add_argument(
        '--opacity',
        type=float,
        default=0.5,
        help='opacity of the painted prediction, above 0 to 1 (default: %(default)s)',
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        help='least score of a detection to be painted (default: %(default)s)',
    )
    add_stitches(parser.add_argument_group('which stitches run'))
    args = parser.parse_args()
    check_args(args)
    return args


def check_args(args: argparse.Namespace) -> None:
    """Refuse wishes that cannot be met, before anything is built.

    Raises:
        ValueError: For each of them.
    """
    if not (args.show or args.output_file):
        raise ValueError('nothing to do; give --show or --output-file')
    if not 0 < args.opacity <= 1:
        raise ValueError(f'--opacity {args.opacity}: allowed is above 0 to 1')
    if len(args.output_fourcc) != 4:
        raise ValueError(
            f'--output-fourcc {args.output_fourcc}: allowed are four letters, such as '
            'MJPG or mp4v'
        )
    if args.target_fps is not None and not 0 < args.target_fps < float('inf'):
        raise ValueError(f'--target-fps {args.target_fps}: allowed is above 0')
    if args.results is not None and args.target_fps is None:
        raise ValueError('--results is for --target-fps, which is missing')


def open_video(video: str) -> tuple[cv2.VideoCapture, np.ndarray]:
    """A video file or camera, and its first frame.

    Raises:
        ValueError: If there is none.
    """
    capture = cv2.VideoCapture(int(video) if video.isdigit() else video)
    read, frame = capture.read()
    if not read:
        raise ValueError(
            f'video {video} cannot be read: it does not exist, is no video, or has no '
            'frame; allowed are video files and the ids of cameras, such as 0'
        )
    return capture, frame


def open_output(
    args: argparse.Namespace, capture: cv2.VideoCapture, stack: ExitStack
) -> Callable[[np.ndarray], None]:
    """What writes a frame to the output video, which is closed with the stack.

    Raises:
        ValueError: If it cannot be written.
    """
    fps = args.output_fps if args.output_fps > 0 else capture.get(cv2.CAP_PROP_FPS)
    wanted = (args.output_width, args.output_height)
    given = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    size = tuple(
        int(w if w > 0 else capture.get(g)) for w, g in zip(wanted, given, strict=True)
    )
    wrong = f'--output-file {args.output_file} cannot be written'
    try:
        path = stack.enter_context(atomic_path(args.output_file))
    except OSError as error:
        raise ValueError(f'{wrong}: {error}') from error
    fourcc = cv2.VideoWriter.fourcc(*args.output_fourcc)
    writer = cv2.VideoWriter(str(path), fourcc, fps or 25, size)
    stack.callback(writer.release)
    if not writer.isOpened():
        raise ValueError(
            f'{wrong} with fourcc {args.output_fourcc} (option: --output-fourcc), '
            f'{fps:g} fps and {size[0]} x {size[1]} pixels'
        )

    def write(frame: np.ndarray) -> None:
        same = frame.shape[1::-1] == size
        writer.write(frame if same else cv2.resize(frame, size))

    return write


def make_painter(
    model: nn.Module, args: argparse.Namespace
) -> Callable[[np.ndarray], np.ndarray]:
    """What predicts a BGR frame and gives it back painted."""
    if args.palette is not None:
        from mmseg.utils import get_palette

        palette = get_palette(args.palette)
        classes = model.dataset_meta['classes']
        if len(palette) != len(classes):
            raise ValueError(
                f'--palette {args.palette} has {len(palette)} colours; the model '
                f'has {len(classes)} classes'
            )
        model.dataset_meta['palette'] = palette
    return init_painter(model, args.opacity, score_thr=args.score_thr)


def make_controller(
    model: nn.Module,
    args: argparse.Namespace,
    results: StitchResults | None,
    run: Callable[[], object],
) -> BudgetController:
    """A controller whose first guess comes from timing two stitches."""
    size = (model.cfg.get('test_cfg') or {}).get('input_size')
    costs = cost_table(model, size).column('flops')
    space = find_stitched_backbone(model).space
    ids = select_stitches(space, args.stitch_id or 'all')
    scores = None
    if results is not None:
        results.check_space(space)
        scores = results.scores()
        select_stitches(space, list(scores))  # refuses ids of another space
        ids = [i for i in ids if i in scores]
        if not ids:
            raise ValueError(
                f'results {args.results} have none of --stitch-id {args.stitch_id}'
            )
        scores = {i: scores[i] for i in ids}
    costs = {i: costs[i] for i in ids}
    measured = {}
    for stitch_id in {min(costs, key=costs.get), max(costs, key=costs.get)}:
        set_stitch(model, stitch_id)
        run()
        measured[stitch_id] = median(elapsed_ms(run) for _ in range(5))
    load = None
    try:
        costs, load = fit_times(costs, measured), 1
    except ValueError:  # one stitch, or a machine too busy to tell them apart
        print('the first times tell nothing; starting with the cheapest stitch')
    better = results is None or results.higher_is_better
    return BudgetController(
        costs, scores, better, target_fps=args.target_fps, load=load
    )


def elapsed_ms(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def caption(frame: np.ndarray, lines: list[str]) -> np.ndarray:
    """Write lines into the top left corner of a frame, on a dark ground."""
    frame = np.ascontiguousarray(frame)
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, max(frame.shape[0] / 900, 0.3)
    sizes = [cv2.getTextSize(line, font, scale, 1) for line in lines]
    step = max(size[1] + base for size, base in sizes) + 2
    width = max(size[0] for size, _ in sizes) + 8
    ground = frame[: step * len(lines) + 4, :width]
    ground[:] = ground // 3
    for n, line in enumerate(lines, start=1):
        place = (4, n * step - 2)
        cv2.putText(
            frame, line, place, font, scale, (255, 255, 255), 1, lineType=cv2.LINE_AA
        )
    return frame


def one_stitch(model: nn.Module, stitch_id: str) -> int:
    ids = select_stitches(find_stitched_backbone(model).space, stitch_id)
    if len(ids) > 1:
        raise ValueError(
            f'--stitch-id {stitch_id}: several stitches are for --target-fps to '
            'choose from; allowed is one without it'
        )
    return ids[0]


@torch.no_grad()
def main() -> None:
    args = parse_args()
    with ExitStack() as stack:
        capture, frame = open_video(args.video)
        stack.callback(capture.release)
        results = StitchResults.read(args.results) if args.results else None
        write = open_output(args, capture, stack) if args.output_file else None
        model = init_model(args.config, args.checkpoint, device=args.device)
        paint = make_painter(model, args)
        controller = None
        if args.target_fps is not None:
            controller = make_controller(model, args, results, lambda: paint(frame))
        elif args.stitch_id is not None:
            set_stitch(model, one_stitch(model, args.stitch_id))
        backbone = find_stitched_backbone(model)
        times, used = [], Counter()
        try:
            while frame is not None:
                if controller is not None:
                    set_stitch(model, controller.stitch)
                begin = time.perf_counter()
                painted = paint(frame)
                times.append((time.perf_counter() - begin) * 1000)
                if controller is not None:
                    controller.update(times[-1])
                stitch = backbone.active_stitch
                used[stitch.id] += 1
                fps = f'stitch {stitch.id}  {1000 / median(times[-10:]):.1f} fps'
                painted = caption(painted, [fps, backbone.space.describe(stitch)])
                if write is not None:
                    write(painted)
                if args.show:
                    cv2.imshow('video_demo', painted)
                    if cv2.waitKey(args.show_wait_time) & 0xFF == ord('q'):
                        break
                frame = capture.read()[1]
        except KeyboardInterrupt:  # how a camera is usually ended: keep what there is
            print()
    print(
        f'{len(times)} frames; predicting and painting one takes '
        f'{median(times):.1f} ms in the median: {1000 / median(times):.1f} fps'
    )
    print('frames by stitch:', ', '.join(f'{i}: {n}' for i, n in used.items()))


if __name__ == '__main__':
    main()
