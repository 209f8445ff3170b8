"""Recognise a folder of labelled images by its layout, and check its content."""

import os
from collections.abc import Sequence
from pathlib import Path

from snnet_mm.utils import check

from .class_folders import read_classes
from .coco_files import read_coco, read_objects
from .image_files import SUFFIXES, find_images, is_hidden, unread
from .label_maps import read_pairs
from .labelled_folder import (
    Findings,
    LabelledFolder,
    annotation_file,
    choose_splits,
)
from .yolo import read_yolo

TASKS = dict(seg='segmentation', depth='depth', det='detection', cls='classification')
LAYOUTS = dict(
    seg='images/ and masks/ (or img_dir/, ann_dir/): masks of one channel',
    depth='images/ and depth/: depth maps of 16 bits',
    det="annotations/*.json or */*.json in COCO's format, or data.yaml of YOLO",
    cls='a folder of images for every class',
)


def read_folder(
    root: str | os.PathLike,
    task: str,
    classes: Sequence[str] = (),
    out: str | os.PathLike | None = None,
) -> LabelledFolder:
    """Recognise and check a folder; split it 80 to 20 if validation images are missing.

    Args:
        root: The folder.
        task: Key of ``TASKS``.
        classes: Class names of the labels in masks. Other layouts define their own.
        out: Config that will be written. If it exists, annotation files that were
            written with it are not read.
    """
    root, classes = Path(root).expanduser().resolve(), list(classes)
    check(task in TASKS, '--task', task, tuple(TASKS))
    check(len({*classes}) == len(classes), '--classes', classes, 'different names')
    if next(find_images(root), None) is None:
        other = ''.join(unread(root))
        raise ValueError(f'{root} has no images, {SUFFIXES} (argument: FOLDER){other}')
    if task == 'det':
        found = _read_detection(root, classes, out)
    else:
        found = (read_classes if task == 'cls' else read_pairs)(root, task, classes)
    if found is None:
        raise ValueError(_unknown(root, task))
    return found


def _read_detection(
    root: Path, classes: list[str], out: str | os.PathLike | None
) -> LabelledFolder | None:
    findings, notes = Findings(), []
    if found := read_yolo(root, findings):
        found = choose_splits({s: (c, s) for s, c in found.items()}, root, notes)
        folders = dict.fromkeys(found, '.')
        result = read_objects(root, found, folders, classes, findings, range(2, 9))
        result.notes += notes + unread(root)
        return result
    out = out and Path(out).expanduser()
    written = ('train', 'val') if out and out.exists() else ()
    own = {annotation_file(out, split, '.json').resolve() for split in written}
    return read_coco(root, classes, own)


def _unknown(root: Path, task: str) -> str:
    """Return a refusal with what is expected and what there is."""
    names = sorted(p.name + '/' * p.is_dir() for p in root.iterdir())
    visible = [name for name in names if not is_hidden(name)]
    hint = '; docs/tutorials/own_data.md converts other formats' * (task == 'det')
    return (
        f'{root} has no known layout for {TASKS[task]}: expected {LAYOUTS[task]}, with '
        f'or without train/ and val/; found {", ".join(visible[:8])}{hint}'
    )
