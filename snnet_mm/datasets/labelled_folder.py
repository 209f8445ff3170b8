"""What is found in a folder of labelled images, and what its readers share."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snnet_mm.utils import check, digest

from .image_files import is_hidden, note

SPLITS = dict(
    train=('train', 'training', 'train2017'),
    val=('val', 'valid', 'validation', 'val2017'),
    test=('test', 'testing', 'test2017'),
)
IMAGE_DIRS = (
    *('images', 'image', 'imgs', 'img', 'img_dir', 'jpegimages', 'rgb', 'leftimg8bit'),
    *('data', 'photos'),
)


@dataclass
class Split:
    """Images for training or validation.

    Attributes:
        number: Number of images.
        dataset: Arguments of the dataset: ``data_prefix`` and, if any, ``ann_file``.
        annotations: Annotation file to write: lines, or a dict in COCO's format.
    """

    number: int
    dataset: dict
    annotations: list[str] | dict | None = None


@dataclass
class LabelledFolder:
    """A recognised folder of labelled images.

    Attributes:
        task: Key of ``TASKS``.
        counts: Number of pixels, objects or images of every class in the files.
        sizes: Number of images of every ``(height, width)``.
        notes: Sentences about oddities that do not prevent training.
        facts: Task-specific values, such as ``with_mask``.
    """

    root: Path
    task: str
    splits: dict[str, Split]
    classes: list[str]
    counts: list[int] = field(default_factory=list)
    sizes: Counter = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Findings(defaultdict[str, list]):
    """Examples of every oddity, by what it is and what to do about it."""

    def __init__(self) -> None:
        super().__init__(list)

    def notes(self) -> list[str]:
        """Return one sentence per oddity, with count and examples."""
        return [line for what, names in self.items() for line in note(what, names)]


def annotation_file(out: Path, split: str, suffix: str) -> Path:
    """Return the annotation file that is written beside a config."""
    return out.with_name(f'{out.stem}_{split}{suffix}')


def folders_in(folder: Path) -> list[str]:
    """Return the names of the visible folders in a folder."""
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(p.name for p in inside if p.is_dir() and not is_hidden(p.name))


def subfolders(folder: Path) -> dict[str, str]:
    """Return the names of the visible folders in a folder, by lower-case names."""
    return {name.lower(): name for name in reversed(folders_in(folder))}


def splits_among(names: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each split's folder among those of :func:`subfolders`."""
    found = {
        s: [names[o] for o in options if o in names] for s, options in SPLITS.items()
    }
    return {split: folders[0] for split, folders in found.items() if folders}


def choose_splits(found: dict[str, Any], where: object, notes: list[str]) -> dict:
    """Return training and validation parts; a test part serves if no other does."""
    if 'test' in found and 'val' in found:
        notes.append(f'the test split of {where} is left out: val is used')
    val = {'val': found['test']} if 'test' in found else {}
    return {k: (val | found)[k] for k in ('train', 'val') if k in val | found}


def divide(items: Sequence) -> tuple[list, list]:
    """Split items 80 to 20, at random with a fixed seed."""
    if len(items) < 2:
        raise ValueError(f'{len(items)} labelled images: expected 2 or more')
    items = random.Random(0).sample(items, len(items))
    number = max(1, len(items) // 5)
    return sorted(items[number:]), sorted(items[:number])


def check_names(given: list[str], classes: list[str]) -> None:
    """Raise if ``--classes`` names other classes than the data define."""
    ok = not given or sorted(given) == sorted(classes)
    check(ok, '--classes', given, f'no classes, or those of the data: {classes}')


def alike(names: Iterable[str]) -> list[str]:
    """Return a note on class names that differ only in case or spaces."""
    groups = defaultdict(list)
    for name in names:
        groups[''.join(name.lower().replace('_', ' ').split())].append(name)
    pairs = [' and '.join(group) for group in groups.values() if len(group) > 1]
    return note('groups of classes have almost one name: one class each?', pairs)


def in_both(train: Iterable[Path], val: Iterable[Path]) -> list[str]:
    """Return a note on validation images with the bytes of a training image."""
    sizes = {path.stat().st_size for path in val}
    some = [path for path in train if path.stat().st_size in sizes]
    seen = {digest([path.read_bytes()]) for path in some}
    checked = val if seen else ()
    both = [p.name for p in checked if digest([p.read_bytes()]) in seen]
    what = 'validation images are training images, too: metrics will be too good'
    return note(what, both)
