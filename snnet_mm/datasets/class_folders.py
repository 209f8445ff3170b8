"""A folder of images for every class."""

from collections.abc import Sequence

from .label_maps import DEPTH_DIRS, MASK_DIRS
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
        return (
            found
            if len({name for part in found.values() for _, name in part}) > 1
            else {}
        )

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
