"""Read a folder of labelled images, whose layout is recognised within a task."""

import os
from collections.abc import Sequence
from pathlib import Path

from snnet_mm.runtime.image_io import SUFFIXES, find_images
from snnet_mm.utils import check

from .coco_files import CocoFiles
from .label_maps import DEPTH_DIRS, MASK_DIRS, DepthMaps, Masks
from .labelled_folder import (
    IMAGE_DIRS,
    Item,
    LabelledFolder,
    Sample,
    Split,
    find_parts,
)


class ClassFolders(LabelledFolder):
    """One folder of images per class, with splits around or inside them."""

    task = 'cls'

    def find(self) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for path, split, name, _ in find_parts(self.root):
            if name:
                found.setdefault(split, []).append((path, name))
        names = {name for part in found.values() for _, name in part}
        return found if len(names) > 1 else {}

    def divide(self, items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
        """Split the images of every class."""
        train, val = [], []
        for name in sorted({name for _, name in items}):
            parts = super().divide([item for item in items if item[1] == name])
            train += parts[0]
            val += parts[1]
        return train, val

    def describe(self, samples: dict[str, list[Sample]]) -> None:
        names = {split: {s.label for s in part} for split, part in samples.items()}
        lower = {name.lower() for name in names['train']}
        if lower & {*IMAGE_DIRS} and lower & {*MASK_DIRS, *DEPTH_DIRS}:
            raise ValueError(
                f'{self.root} has the folders {sorted(lower)}, which are not classes: '
                'expected a folder per class; images with masks are --task seg'
            )
        if other := sorted(names['train'] ^ names['val']):
            raise ValueError(
                f'val of {self.root} differs from the training images in the classes '
                f'{other[:5]}: expected the same classes'
            )
        self.define_classes(sorted(names['train']))
        for split, part in samples.items():
            folder, paths = self.parts_of([s.image for s in part])
            pairs = zip(paths, part, strict=True)
            lines = [f'{path} {self.classes.index(s.label)}' for path, s in pairs]
            self.splits[split] = Split(len(lines), folder, lines)
            self.counts.update(s.label for s in part)


TASKS = dict(seg='segmentation', depth='depth', det='detection', cls='classification')
LAYOUTS = dict(seg=Masks, depth=DepthMaps, det=CocoFiles, cls=ClassFolders)
EXPECTED = dict(
    seg='images/ and masks/ (or img_dir/, ann_dir/): masks of one channel',
    depth='images/ and depth/: depth maps of 16 bits',
    det="annotations/*.json or */*.json in COCO's format",
    cls='a folder of images for every class',
)


def read_folder(
    root: str | os.PathLike, task: str, classes: Sequence[str] = ()
) -> LabelledFolder:
    """Recognise and check a folder; split it 80 to 20 if validation images are missing.

    Args:
        root: The folder.
        task: Key of ``TASKS``.
        classes: Class names of the labels in masks. Other layouts define their own.

    Raises:
        ValueError: If its layout is unknown, or training would misread its labels.
    """
    root = Path(root).expanduser().resolve()
    check(len({*classes}) == len(classes), '--classes', classes, 'different names')
    if next(find_images(root), None) is None:
        raise ValueError(f'{root} has no images, {SUFFIXES} (argument: FOLDER)')
    folder = LAYOUTS[task](root, classes)
    if not folder.read():
        names = sorted(p.name + '/' * p.is_dir() for p in root.iterdir())
        hint = '; docs/tutorials/own_data.md converts others' * (task == 'det')
        raise ValueError(
            f'{root} has no known layout for {TASKS[task]}: expected {EXPECTED[task]}, '
            f'with or without train/ and val/; found {", ".join(names[:8])}{hint}'
        )
    return folder
