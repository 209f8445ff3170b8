"""Predict a video with a bundle: ``tools/video_demo.py VIDEO BUNDLE``.

Every frame shows its stitch and the frame rate of predicting and drawing.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import cv2
import numpy as np

from snnet_mm.runtime import StitchRuntime, paint
from snnet_mm.runtime.image_io import SUFFIXES, read_image
from snnet_mm.utils import ToolParser, atomic_path, check, refusal, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Predict a video')
    add = parser.add_argument
    add('video', help='video file, webcam id, or folder of images')
    add('bundle', help='folder of an exported bundle')
    what = 'opacity of the prediction, above 0 to 1 (default: %(default)s)'
    add('--opacity', type=float, default=0.5, help=what)
    what = 'minimum score of drawn detections (default: %(default)s)'
    add('--score-thr', type=float, default=0.3, help=what)
    add('--show', action='store_true', help='show it; q ends it')
    add('--output-file', type=Path, help='output video: .mp4, or .avi of JPEGs')
    which = parser.add_mutually_exclusive_group()
    what = 'the stitch (default: the best one)'
    which.add_argument('--stitch-id', type=int, help=what)
    what = """frames a second that predicting is to reach: stitches are switched as the
        load of the machine asks for"""
    which.add_argument('--target-fps', type=float, help=what)
    args = parser.parse_args()
    check(args.show or args.output_file, '--output-file', None, 'a file, or --show')
    check(0 < args.opacity <= 1, '--opacity', args.opacity, 'a number above 0, up to 1')
    return args


def open_video(video: str) -> tuple[Iterator[np.ndarray], float]:
    """Return BGR frames of a video file, camera or folder, and fps, 0 if unknown."""
    if os.path.isdir(video):
        paths = [p for p in Path(video).iterdir() if p.suffix.lower() in SUFFIXES]
        return (read_image(path)[..., ::-1] for path in sorted(paths)), 0
    capture = cv2.VideoCapture(int(video) if video.isdigit() else video)
    frames = (frame for _, frame in iter(capture.read, (False, None)))
    return frames, capture.get(cv2.CAP_PROP_FPS)


def open_output(
    path: Path, fps: float, frame: np.ndarray, stack: ExitStack
) -> Callable[[np.ndarray], None]:
    """Return a function that writes a frame to a video; the stack closes the video."""
    fps, size = fps or 25, frame.shape[1::-1]
    fourcc = cv2.VideoWriter.fourcc(*('mp4v' if path.suffix == '.mp4' else 'MJPG'))
    temporary = stack.enter_context(atomic_path(path))
    writer = cv2.VideoWriter(str(temporary), fourcc, fps, size)
    stack.callback(writer.release)
    if not writer.isOpened():
        allowed = f'a video, .avi or .mp4, of {fps:g} fps and {size}'
        raise refusal('--output-file', str(path), allowed)
    # Images of a folder may differ in size from the first one.
    return lambda picture: writer.write(cv2.resize(picture, size))


def annotate(frame: np.ndarray, lines: list[str], legend: dict) -> np.ndarray:
    """Write lines into the top left corner of a frame, and a legend at its bottom."""
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
    frames, fps = open_video(args.video)
    frame = next(frames, None)
    known = 'a readable video file, a camera such as 0, or a folder of images'
    check(frame is not None, 'video', args.video, known)
    runtime = StitchRuntime(args.bundle)
    manifest, legend = runtime.manifest, {}
    channels = manifest['input']['shape'][1]
    three = 'a bundle for images of three channels'
    check(channels == 3, 'bundle', f'{args.bundle}, of {channels} channels', three)
    classes, palette = manifest['classes'], manifest['palette']
    if args.stitch_id is not None:
        runtime.set_stitch(args.stitch_id)
    if args.target_fps is not None:
        runtime.hold(args.target_fps)
    times, used, how = [], Counter(), (args.opacity, args.score_thr)
    with ExitStack() as stack:
        output = args.output_file
        write = open_output(output, fps, frame, stack) if output else None
        try:
            while frame is not None:
                stitch = runtime.active_stitch
                begin = time.perf_counter()
                image = np.ascontiguousarray(frame[..., ::-1])
                found = runtime(image)
                picture = paint(image, found, classes, palette, *how)[..., ::-1]
                times.append((time.perf_counter() - begin) * 1000)
                used[stitch] += 1
                if manifest['task'] == 'segmentation' and palette:
                    legend |= {classes[i]: palette[i] for i in np.unique(found)}
                rate = f'stitch {stitch}  {1000 / median(times[-10:]):.1f} fps'
                lines = [rate, runtime.stitches[stitch]['route']]
                picture = annotate(picture, lines, legend)
                if write is not None:
                    write(picture)
                if args.show:
                    cv2.imshow('video_demo', picture)
                    if cv2.waitKey(1) & 0xFF == ord('q'):
                        break
                frame = next(frames, None)
        except KeyboardInterrupt:  # the usual way to stop a camera: keep the video
            print()
    print(
        f'{len(times)} frames; predicting and drawing one takes '
        f'{median(times):.1f} ms in the median: {1000 / median(times):.1f} fps'
    )
    print('frames by stitch:', ', '.join(f'{i}: {n}' for i, n in used.items()))


if __name__ == '__main__':
    run_command(main)
