"""Bring NYU Depth V2's labelled file into mmsegmentation's layout.

``nyu_labelled.py nyu_depth_v2_labeled.mat splits.mat OUT`` writes the 795 training and
654 test images of the Eigen split as ``images/{train,test}/<scene type>_<number>.jpg``
and their depth as 16-bit ``annotations/{train,test}/<scene type>_<number>.png`` in
millimetres, 0 where there is none. mmsegmentation's own converter takes the 24231
training images that are not in these files.
"""

import argparse
from pathlib import Path

import cv2
import h5py
import numpy as np
from rich.progress import track
from scipy.io import loadmat

from snnet_mm.utils import atomic_path

DEPTHS = dict(raw='rawDepths', filled='depths')
SPLITS = dict(train='trainNdxs', test='testNdxs')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('labelled', help='nyu_depth_v2_labeled.mat')
    parser.add_argument('splits', help='splits.mat, the Eigen split')
    parser.add_argument('out', type=Path, help='folder of the data set, as data/nyu')
    parser.add_argument(
        '--depth',
        choices=DEPTHS,
        default='raw',
        help='what the sensor saw (default), or with its holes filled in',
    )
    return parser.parse_args()


def read_splits(path: str, num_images: int) -> dict[str, list[int]]:
    """Image numbers of each split, from 1 as in the file.

    Raises:
        ValueError: If a split is missing, or names an image that is not there.
    """
    content = loadmat(path)
    splits = {}
    for split, key in SPLITS.items():
        if key not in content:
            raise ValueError(f'{path} holds no {key!r}; it is not the Eigen split')
        numbers = content[key].ravel().tolist()
        wrong = [n for n in numbers if not 1 <= n <= num_images]
        if wrong:
            raise ValueError(
                f'{key} of {path} names image {wrong[0]}; allowed are 1 to {num_images}'
            )
        splits[split] = numbers
    return splits


def read_image(labelled: h5py.File, number: int, depth_key: str) -> tuple:
    """Image (H, W, 3) in BGR, depth (H, W) in whole millimetres and scene type.

    MATLAB's order of axes is the reverse of numpy's.
    """
    i = number - 1
    image = labelled['images'][i].transpose(2, 1, 0)[..., ::-1]
    metres = labelled[depth_key][i].T
    millimetres = np.nan_to_num(metres * 1000).round().clip(0, 2**16 - 1)
    letters = labelled[labelled['sceneTypes'][0, i]][()]
    scene = ''.join(map(chr, letters.ravel()))
    return np.ascontiguousarray(image), millimetres.astype(np.uint16), scene


def write_image(path: Path, image: np.ndarray, *options: int) -> None:
    """Write a JPEG or PNG file whole or not at all."""
    _, encoded = cv2.imencode(path.suffix, image, options)
    with atomic_path(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def main() -> None:
    args = parse_args()
    depth_key = DEPTHS[args.depth]
    with h5py.File(args.labelled) as labelled:
        missing = {'images', 'sceneTypes', depth_key} - set(labelled)
        if missing:
            raise ValueError(
                f'{args.labelled} holds no {sorted(missing)}; wanted is '
                'nyu_depth_v2_labeled.mat'
            )
        splits = read_splits(args.splits, len(labelled['images']))
        for split, numbers in splits.items():
            for number in track(numbers, split):
                image, depth, scene = read_image(labelled, number, depth_key)
                name = f'{scene}_{number:05d}'
                write_image(
                    args.out / 'images' / split / f'{name}.jpg',
                    image,
                    cv2.IMWRITE_JPEG_QUALITY,
                    95,
                )
                write_image(args.out / 'annotations' / split / f'{name}.png', depth)
    counts = ' and '.join(f'{len(v)} {k} images' for k, v in splits.items())
    print(f'Wrote {counts} with {args.depth} depth to {args.out}')


if __name__ == '__main__':
    main()
