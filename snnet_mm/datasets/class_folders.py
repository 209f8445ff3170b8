"""Read a folder of images for every class."""

import os
from collections import Counter
from pathlib import Path

from .image_files import find_images, image_notes, read_all, read_image, unread
from .label_maps import DEPTH_DIRS, MASK_DIRS
from .labelled_folder import (
    IMAGE_DIRS,
    Findings,
    LabelledFolder,
    Split,
    alike,
    check_names,
    choose_splits,
    divide,
    folders_in,
    in_both,
    splits_among,
    subfolders,
)

EMPTY = 'folders without an image that can be read are no classes'
NESTED = 'folders inside those of classes are read as images of the class'
Files = dict[str, list[Path]]  # images of every class


def read_classes(root: Path, task: str, given: list[str]) -> LabelledFolder | None:
    """Read one folder of images per class, with splits around or inside them."""
    notes, findings = unread(root), Findings()
    files = choose_splits(_find(root, findings), root, notes)
    classes = [name for name, found in files.get('train', {}).items() if found]
    _refuse_labels(root, classes)
    if len(classes) < 2:
        return None
    for split, found in files.items():
        other = sorted({name for name in found if found[name]} ^ {*classes})
        if other:
            raise ValueError(
                f'{split} of {root} differs from the training images in the classes '
                f'{other[:5]}: expected the same classes'
            )
    check_names(given, classes)
    if len(files) == 1:
        parts = {name: divide(files['train'][name]) for name in classes}
        named = enumerate(('train', 'val'))
        files = {split: {n: p[i] for n, p in parts.items()} for i, split in named}
    flat = {
        s: [p for some in found.values() for p in some] for s, found in files.items()
    }
    notes += findings.notes() + alike(classes) + in_both(flat['train'], flat['val'])
    paths = flat['train'] + flat['val']
    facts = dict(zip(paths, read_all(read_image, [(p,) for p in paths]), strict=True))
    notes += image_notes(facts, turned=())
    splits = {split: _split(root, found, classes) for split, found in files.items()}
    counts = [sum(len(found[name]) for found in files.values()) for name in classes]
    sizes = Counter(fact.size for fact in facts.values())
    return LabelledFolder(root, 'cls', splits, classes, counts, sizes, notes)


def _refuse_labels(root: Path, classes: list[str]) -> None:
    lower = {name.lower() for name in classes}
    if lower & {*IMAGE_DIRS} and lower & {*MASK_DIRS, *DEPTH_DIRS}:
        raise ValueError(
            f'{root} has the folders {classes}, which are no classes: expected a '
            'folder per class; images with masks are --task seg'
        )


def _find(root: Path, findings: Findings) -> dict[str, Files]:
    """Return the images of every class in every split."""
    splits = splits_among(subfolders(root))
    if 'train' not in splits:
        inner = {n: splits_among(subfolders(root / n)) for n in folders_in(root)}
        if not any('train' in found for found in inner.values()):
            splits = dict(train='.')
        else:  # such as cat/train and cat/val
            splits = dict.fromkeys(s for found in inner.values() for s in found)
            folders = {
                s: {n: root / n / inner[n].get(s, s) for n in inner} for s in splits
            }
            return {s: _images(found, findings) for s, found in folders.items()}
    folders = {
        split: {n: root / name / n for n in folders_in(root / name)}
        for split, name in splits.items()
    }
    return {split: _images(found, findings) for split, found in folders.items()}


def _images(folders: dict[str, Path], findings: Findings) -> Files:
    files = {n: [*find_images(p)] if p.is_dir() else [] for n, p in folders.items()}
    for name, folder in folders.items():
        inside = {path.parent for path in files[name]} - {folder}
        findings[NESTED] += sorted(
            p.relative_to(folder.parent).as_posix() for p in inside
        )
        findings[EMPTY] += [] if files[name] else [name]
    return files


def _split(root: Path, files: Files, classes: list[str]) -> Split:
    folders = {p.parent.relative_to(root) for found in files.values() for p in found}
    base = os.path.commonpath(folders)
    lines = [
        f'{path.relative_to(root / base).as_posix()} {i}'
        for i, name in enumerate(classes)
        for path in files[name]
    ]
    return Split(len(lines), dict(data_prefix=base), lines)
