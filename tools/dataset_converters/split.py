"""Make class folders from lists, with few images per class, or for validation.

Lists have the format of visual prompt tuning for fine-grained sets (JSON, image to
class) or of VTAB-1k (image and class per line). Folders contain links and ``ids.txt``.
"""

import argparse
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

from snnet_mm.utils import ToolParser, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('images', type=Path, help='folder of images')
    parser.add_argument('out', type=Path, help='output folder, which must not exist')
    chosen = parser.add_mutually_exclusive_group(required=True)
    what = 'lists of the training and test images'
    chosen.add_argument('--lists', nargs=2, type=Path, help=what)
    what = 'training images to draw per class; IMAGES contains train and test'
    chosen.add_argument('--shots', type=int, help=what)
    what = """fraction of each class of IMAGES/train to use for validation: OUT/test
        contains these images, OUT/train the others"""
    chosen.add_argument('--val-part', type=float, metavar='PART', help=what)
    parser.add_argument('--seed', type=int, default=0, help='seed of the draw')
    return parser.parse_args()


def read_list(path: Path) -> dict[str, str]:
    """Read a list, JSON or lines, and return the class of each image."""
    text = path.read_text()
    if path.suffix == '.json':
        found = {image: str(label) for image, label in json.loads(text).items()}
    else:
        found = dict(line.rsplit(maxsplit=1) for line in text.splitlines() if line)
    # Class folders are sorted by name: pad numbers with zeros.
    digits = max(map(len, found.values()), default=0)
    return {k: v.zfill(digits) if v.isdigit() else v for k, v in found.items()}


def draw(
    folder: Path, number_of: Callable[[int], int], seed: int, option: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Draw images of each class; return the classes of these and of the others."""
    draws, parts = random.Random(seed), ({}, {})
    for label in sorted(p for p in folder.iterdir() if p.is_dir()):
        images = sorted(p.name for p in label.iterdir())
        number = number_of(len(images))
        if not 0 < number <= len(images):
            raise ValueError(f'cannot draw {option} of {len(images)} images in {label}')
        drawn = {*draws.sample(images, number)}
        for name in images:
            parts[name not in drawn][f'{label.name}/{name}'] = label.name
    return parts


def link(root: Path, out: Path, classes: dict[str, str]) -> None:
    """Make a folder of links to images for each class, and write their list."""
    missing = [image for image in classes if not (root / image).is_file()]
    if missing:
        raise ValueError(f'{root} lacks {len(missing)} images: {missing[:3]}')
    for image, label in classes.items():
        # Images of the same name in several folders must not collide.
        path = out / label / image.removeprefix(f'{label}/').replace('/', '_')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(
            os.path.relpath((root / image).resolve(), path.parent.resolve())
        )
    (out / 'ids.txt').write_text(''.join(f'{k} {v}\n' for k, v in classes.items()))


def main() -> None:
    args = parse_args()
    if args.out.exists():
        raise ValueError(f'{args.out} already exists')
    if args.lists is not None:
        for split, path in zip(('train', 'test'), args.lists, strict=True):
            link(args.images, args.out / split, read_list(path))
        return
    train, part = args.images / 'train', args.val_part
    if part is None:
        option = f'--shots={args.shots}'
        few, _ = draw(train, lambda number: args.shots, args.seed, option)
        link(train, args.out / 'train', few)
        test = (args.images / 'test').resolve()
        (args.out / 'test').symlink_to(os.path.relpath(test, args.out.resolve()))
        return

    def num_validation(number: int) -> int:
        chosen = max(1, round(part * number))
        return chosen if part > 0 and chosen < number else 0

    splits = draw(train, num_validation, args.seed, f'--val-part={part}')
    for split, classes in zip(('test', 'train'), splits, strict=True):
        link(train, args.out / split, classes)


if __name__ == '__main__':
    run_command(main)
