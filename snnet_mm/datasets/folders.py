"""Read a folder of labelled images, whose layout is recognised within a task."""

import os
from collections.abc import Sequence
from pathlib import Path

from snnet_mm.utils import check

from .class_folders import ClassFolders
from .coco_files import CocoFiles
from .image_files import SUFFIXES, find_images
from .label_maps import DepthMaps, Masks
from .labelled_folder import LabelledFolder

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
    check(task in TASKS, '--task', task, tuple(TASKS))
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
