"""A folder of labelled images: what its layouts share."""

import os
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from snnet_mm.runtime.image_io import find_images
from snnet_mm.utils import check, digest

from .image_files import (
    OTHER_SUFFIXES,
    ImageFacts,
    read_all,
    read_image,
)

SPLITS = dict(
    train=('train', 'training', 'train2017'),
    val=('val', 'valid', 'validation', 'val2017'),
    test=('test', 'testing', 'test2017'),
)
SPLIT_OF = {option: split for split, options in SPLITS.items() for option in options}
IMAGE_DIRS = (
    *('images', 'image', 'imgs', 'img', 'img_dir', 'jpegimages', 'rgb', 'leftimg8bit'),
    *('data', 'photos'),
)
DARK = 32  # highest value of an image, of 255, that hardly shows anything
Item = tuple[Path, Any]  # an image, and its label or the file of its label

T = TypeVar('T')


class Sample(NamedTuple):
    """An image and its checked label."""

    image: Path
    label: Any
    facts: ImageFacts


class Split(NamedTuple):
    """Images for training or validation."""

    number: int
    prefix: str | dict[str, str]  # data_prefix of the dataset
    annotations: list[str] | dict  # lines of a file, or a dict in COCO's format


class LabelledFolder(ABC):
    """A folder of labelled images in one of the layouts of a task.

    Subclasses find, read and describe the labels of a layout.

    Attributes:
        root: The folder.
        classes: Class names, in the order of labels.
        splits: Training and validation images.
        sizes: Number of images of every ``(height, width)``.
        counts: Number of pixels, objects or images of every class.
        facts: Task-specific values, such as ``with_mask``.
        odd: Examples of every oddity that does not prevent training, by what it is.
    """

    task: str

    def __init__(self, root: Path, classes: Sequence[str] = ()) -> None:
        self.root, self.classes = root, list(classes)
        self.splits: dict[str, Split] = {}
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.counts: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}
        self.odd: defaultdict[str, list] = defaultdict(list)

    @property
    def notes(self) -> list[str]:
        """One sentence per oddity, with number and examples."""
        lines = []
        for what, names in self.odd.items():
            if names:
                first = ', '.join(map(str, names[:3])) + ', ...' * (len(names) > 3)
                lines.append(f'{len(names)} {what}: {first}')
        return lines

    @abstractmethod
    def find(self) -> dict[str, list[Item]]:
        """Return images and labels of every split; '' is that of no name."""

    def read_label(self, image: Path, label: Any, facts: ImageFacts) -> Any:
        """Return the checked label of an image; called in threads."""
        return label

    @abstractmethod
    def describe(self, samples: dict[str, list[Sample]]) -> None:
        """Check all samples together, and set ``splits`` and ``facts``."""

    def read(self) -> bool:
        """Read and check all files; return False if the folder has another layout."""
        parts = self._choose(self.find())
        if 'train' not in parts:
            return False
        if 'val' not in parts:
            parts['train'], parts['val'] = self.divide(parts['train'])
        items = [item for part in parts.values() for item in part]
        found = iter(read_all(self._read_item, items))
        samples = {split: [next(found) for _ in part] for split, part in parts.items()}
        self.describe(samples)
        unused = [name for name in self.classes if not self.counts[name]]
        self.odd['classes without a label'] += unused
        self._check_images(samples)
        return True

    def divide(self, items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
        """Split items 80 to 20, at random with a fixed seed."""
        if len(items) < 2:
            raise ValueError(
                f'{items[0][0]} is the only image to split into training and '
                'validation: expected 2 or more'
            )
        items = random.Random(0).sample(items, len(items))
        number = max(1, len(items) // 5)
        train, val = items[number:], items[:number]
        return sorted(train, key=lambda x: x[0]), sorted(val, key=lambda x: x[0])

    def define_classes(self, names: Sequence[str]) -> None:
        """Set the classes that the data define; raise if the user expects others."""
        ok = not self.classes or sorted(self.classes) == sorted(names)
        expected = f'no classes, or those of the data: {names}'
        check(ok, '--classes', self.classes, expected)
        self.classes = list(names)

    def parts_of(self, paths: Sequence[Path]) -> tuple[str, list[str]]:
        """Return the folder of all files, relative to the root, and the names in it."""
        folder = os.path.commonpath([path.parent for path in paths])
        names = [path.relative_to(folder).as_posix() for path in paths]
        return os.path.relpath(folder, self.root), names

    def _choose(self, found: dict[str, T]) -> dict[str, T]:
        """Return training and validation parts; validate on a test part if necessary.

        Images without a split are for training, unless there is a training part.
        """
        names = dict(
            train='train' if 'train' in found else '',
            val='val' if 'val' in found else 'test',
        )
        unused = [s or 'files without a split' for s in {*found} - {*names.values()}]
        self.odd[f'splits of {self.root} are left out'] += sorted(unused)
        return {split: found[s] for split, s in names.items() if s in found}

    def _read_item(self, image: Path, label: Any) -> Sample:
        facts = read_image(image)
        return Sample(image, self.read_label(image, label, facts), facts)

    def _check_images(self, samples: dict[str, list[Sample]]) -> None:
        """Note images that training may misread; raise if all are too dark."""
        facts = {s.image: s.facts for part in samples.values() for s in part}
        self.sizes.update(fact.size for fact in facts.values())
        if max(fact.highest for fact in facts.values()) < DARK:
            raise ValueError(
                f'the images of {self.root}, such as {min(facts)}, have no value above '
                f'{DARK} of 255 in training, which reads the upper 8 of 16 bits: '
                'stretch them to 8 bits'
            )
        turned = [p.name for p, fact in facts.items() if fact.orientation in (2, 3, 4)]
        self.odd[  # the sizes of labels show other orientations
            'images have an EXIF orientation, which training applies to the image and '
            'not to its label; if labels were drawn on unturned pixels, save the '
            'images without it'
        ] += turned if self.task != 'cls' else []
        train, val = ([s.image for s in samples[split]] for split in ('train', 'val'))
        lengths = {path.stat().st_size for path in val}
        some = [path for path in train if path.stat().st_size in lengths]
        seen = {digest([path.read_bytes()]) for path in some}
        self.odd[
            'validation images are training images, too: metrics will be too good'
        ] += [path.name for path in val if seen and digest([path.read_bytes()]) in seen]
        others = [path.name for path in find_images(self.root, OTHER_SUFFIXES)]
        self.odd['files are left out, by their format'] += others


def find_parts(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield every image with its split, its folder, and the rest of its name.

    The split, empty if there is none, may be inside or around the folder: ``train/cat``
    or ``cat/train``. The rest has no suffix, but the names of further folders.
    """
    for path in find_images(root):
        *folders, name = path.relative_to(root).with_suffix('').parts
        splits = [f for f in folders[:2] if f.lower() in SPLIT_OF][:1]
        folder, *inside = [f for f in folders if f not in splits] or ['']
        split = SPLIT_OF[splits[0].lower()] if splits else ''
        yield path, split, folder, '/'.join([*inside, name])
