"""Convert colour masks of a labelling tool to label images for training.

``color_masks.py MASKS LABELS --colors 000000 ff0000`` labels each colour with its index
in the list. All other colours become 255, which training ignores. Without ``--colors``,
the colours of all masks are printed, most frequent first.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from snnet_mm.utils import ToolParser, check, check_writable, run_command

IGNORED = 255


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('masks', type=Path, help='folder of masks, searched for *.png')
    parser.add_argument('labels', type=Path, nargs='?', help='folder to write')
    what = 'colours of classes 0, 1, ... as RRGGBB (default: print those of the masks)'
    parser.add_argument('--colors', nargs='+', metavar='RRGGBB', help=what)
    args = parser.parse_args()
    given = args.colors is not None
    expected = 'a folder, with --colors' if given else 'no value without --colors'
    check((args.labels is not None) is given, 'labels', args.labels, expected)
    return args


def read(path: Path) -> np.ndarray:
    """Return the colours of a mask as integers such as 0xff0000."""
    import cv2

    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    check(image is not None, 'argument: masks', str(path), 'readable images')
    return image[..., ::-1].astype(np.int64) @ (1 << 16, 1 << 8, 1)


def main() -> None:
    args = parse_args()

    import cv2

    paths = sorted(args.masks.rglob('*.png'))
    check(paths, 'argument: masks', str(args.masks), 'a folder with *.png')
    try:
        colors = [int(color, 16) for color in args.colors or ()]
    except ValueError:
        check(False, '--colors', args.colors, 'colours such as ff0000')
    pixels: Counter[int] = Counter()
    for path in paths:
        mask = read(path)
        found, counts = np.unique(mask, return_counts=True)
        pixels.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        if colors:
            label = np.full(mask.shape, IGNORED, np.uint8)
            for i, color in enumerate(colors):
                label[mask == color] = i
            file = args.labels / path.relative_to(args.masks)
            check_writable(file.parent, 'argument: labels')
            cv2.imwrite(str(file), label)
    total = pixels.total()
    for color, count in pixels.most_common():
        label = colors.index(color) if color in colors else IGNORED
        words = f', label {label}' if colors else ''
        print(f'{color:06x}: {100 * count / total:.2f} % of the pixels{words}')
    if colors:
        print(f'Wrote {len(paths)} label images to {args.labels}')


if __name__ == '__main__':
    run_command(main)
