"""Convert NYU Depth V2's labelled file to mmsegmentation's layout.

``nyu_labelled.py nyu_depth_v2_labeled.mat splits.mat OUT`` writes the 795 training and
654 test images of the Eigen split as ``images/{train,test}/<scene type>_<number>.jpg``
and their depth as 16-bit ``annotations/{train,test}/<scene type>_<number>.png`` in
millimetres, 0 where it is missing. mmsegmentation's own converter expects the 24231
training images, which these files do not contain.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import track

from snnet_mm.utils import ToolParser, atomic_path, check, run_command

if TYPE_CHECKING:
    import h5py

DEPTHS = 'rawDepths'  # as measured by the sensor, with holes
SPLITS = dict(train='trainNdxs', test='testNdxs')


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('labelled', help='nyu_depth_v2_labeled.mat')
    parser.add_argument('splits', help='splits.mat, the Eigen split')
    parser.add_argument('out', type=Path, help='folder of the data set, as data/nyu')
    return parser.parse_args()


def read_splits(path: str, num_images: int) -> dict[str, list[int]]:
    """Read the 1-based image numbers of each split."""
    from scipy.io import loadmat

    content = loadmat(path)
    check(content.keys() >= set(SPLITS.values()), 'splits', path, 'the Eigen split')
    splits = {split: content[key].ravel().tolist() for split, key in SPLITS.items()}
    for number in sum(splits.values(), []):
        check(1 <= number <= num_images, 'splits', number, f'1 to {num_images}')
    return splits


def read_image(labelled: h5py.File, number: int) -> tuple:
    """Return image (H, W, 3) in BGR, depth (H, W) in whole millimetres, scene type.

    MATLAB's order of axes is the reverse of numpy's.
    """
    i = number - 1
    image = labelled['images'][i].transpose(2, 1, 0)[..., ::-1]
    metres = labelled[DEPTHS][i].T
    millimetres = np.nan_to_num(metres * 1000).round().clip(0, 2**16 - 1)
    letters = labelled[labelled['sceneTypes'][0, i]][()]
    scene = ''.join(map(chr, letters.ravel()))
    return np.ascontiguousarray(image), millimetres.astype(np.uint16), scene


def write_image(path: Path, image: np.ndarray) -> None:
    """Write a JPEG or PNG file atomically."""
    import cv2

    with atomic_path(path) as temporary:
        cv2.imwrite(str(temporary), image, [cv2.IMWRITE_JPEG_QUALITY, 95])


def main() -> None:
    args = parse_args()

    import h5py

    with h5py.File(args.labelled) as labelled:
        needed, found = {'images', 'sceneTypes', DEPTHS}, set(labelled)
        check(needed <= found, 'labelled', found, f'{needed}, as the official file has')
        splits = read_splits(args.splits, len(labelled['images']))
        for split, numbers in splits.items():
            for number in track(numbers, split):
                image, depth, scene = read_image(labelled, number)
                name = f'{scene}_{number:05d}'
                write_image(args.out / 'images' / split / f'{name}.jpg', image)
                write_image(args.out / 'annotations' / split / f'{name}.png', depth)
    counts = ' and '.join(f'{len(v)} {k} images' for k, v in splits.items())
    print(f'Wrote {counts} to {args.out}')


if __name__ == '__main__':
    run_command(main)
