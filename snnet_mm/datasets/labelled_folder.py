"""What is found in a folder of labelled images, and what its readers share."""

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snnet_mm.utils import check, digest

from .image_files import find_files, note

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


def find_parts(root: Path, suffixes: Sequence[str]) -> Iterator[tuple]:
    """Yield every file with its split, its folder, and the rest of its name.

    The split, empty if there is none, may be inside or around the folder: ``train/cat``
    or ``cat/train``. The rest has no suffix, but the names of further folders.
    """
    for path in find_files(root, suffixes):
        *folders, name = path.relative_to(root).with_suffix('').parts
        splits = [f for f in folders[:2] if f.lower() in SPLIT_OF][:1]
        folder, *inside = [f for f in folders if f not in splits] or ['']
        split = SPLIT_OF[splits[0].lower()] if splits else ''
        yield path, split, folder, '/'.join([*inside, name])


def relative_names(paths: Sequence[Path], root: Path) -> tuple[str, list[str]]:
    """Return the folder of all files, relative to the root, and their names in it."""
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    names = [path.relative_to(folder).as_posix() for path in paths]
    return folder.relative_to(root).as_posix(), names


def choose_splits(found: Mapping[str, Any], where: object, notes: list[str]) -> dict:
    """Return training and validation parts; a test part serves if no other does.

    What has no split is for training, unless there is a part of this name.
    """
    if 'test' in found and 'val' in found:
        notes.append(f'the test split of {where} is left out: val is used')
    if '' in found and 'train' in found:
        notes.append(f'files of {where} outside its splits are left out')
    parts = dict(
        train=found.get('train', found.get('')), val=found.get('val', found.get('test'))
    )
    return {split: part for split, part in parts.items() if part is not None}


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


def in_both(train: Iterable[Path], val: Iterable[Path]) -> list[str]:
    """Return a note on validation images with the bytes of a training image."""
    sizes = {path.stat().st_size for path in val}
    some = [path for path in train if path.stat().st_size in sizes]
    seen = {digest([path.read_bytes()]) for path in some}
    checked = val if seen else ()
    both = [p.name for p in checked if digest([p.read_bytes()]) in seen]
    what = 'validation images are training images, too: metrics will be too good'
    return note(what, both)
