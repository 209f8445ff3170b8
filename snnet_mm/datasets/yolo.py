"""Convert YOLO data sets of boxes or polygons to COCO's format."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from .image_files import SUFFIXES, find_images, is_hidden, read_all, read_size, unread
from .labelled_folder import Findings

MOVED = 'paths do not exist here: read by their last folders below the data'
UNLABELLED = 'images have no label file: they are background'
UNUSED = 'label files belong to no image that is read'
POSE = 'label files have keypoints, which are not read'
SAME = 'val is the same as train: a fifth of the images validates instead'
NO_TXT = ('classes.txt', 'notes.txt', 'train.txt', 'val.txt', 'test.txt')


def find_yolo(root: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the ``data.yaml`` in a folder, and its content, if there is one."""
    found = []
    for path in sorted([*root.glob('*.yaml'), *root.glob('*.yml')]):
        try:
            text = path.read_text(encoding='utf-8-sig')
            data = yaml.safe_load(text)
            # A class may be called no, which safe_load reads as False.
            written = yaml.load(text, Loader=yaml.BaseLoader)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(f'{path} is no YAML: {error}') from error
        if isinstance(data, dict) and {'names', 'train'} <= data.keys():
            found.append((path, data | dict(names=written['names'])))
    if len(found) > 1:
        names = [path.name for path, _ in found]
        raise ValueError(f'{root} has {names}: expected one file of YOLO')
    return found[0] if found else None


def yolo_to_coco(
    path: Path, data: dict[str, Any], findings: Findings
) -> dict[str, dict]:
    """Return a COCO dict for every split of a ``data.yaml``.

    File names are relative to the folder of ``path``. If any object is a polygon, boxes
    become polygons of four corners.

    Args:
        path: The file.
        data: Its content.
        findings: Collects what is not read as it is written.
    """
    names = _names(path, data)
    val = data.get('val') or data.get('valid')
    splits = dict(train=data['train'], val=val, test=data.get('test'))
    if val == data['train']:
        findings[SAME].append(path.name)
        splits['val'] = None
    found = {}
    for split, entries in splits.items():
        if entries:
            images = _images(path.parent, data.get('path') or '', entries, findings)
            pose = 'kpt_shape' in data
            items = [(image, path.parent, len(names), pose) for image in images]
            found[split] = read_all(_read_objects, items)
            if not images:
                raise ValueError(
                    f'{path} has no images in {split}: {entries}, {SUFFIXES}; '
                    f'{"".join(unread(path.parent))}'
                )
            if pose:
                findings[POSE].append(split)
    _compare_labels(path.parent, found, findings)
    polygons = any(not box for s in found.values() for _, o in s for *_, box in o)
    categories = [dict(id=i, name=name) for i, name in enumerate(names, 1)]
    return {
        split: dict(_as_coco(images, polygons), categories=categories)
        for split, images in found.items()
    }


def _names(path: Path, data: dict[str, Any]) -> list[str]:
    names = data['names']
    if isinstance(names, dict) and {*names} != {*map(str, range(len(names)))}:
        expected = f'expected those of the classes 0 to {len(names) - 1}'
        raise ValueError(f'{path} has the names {names}: {expected}')
    if isinstance(names, dict):
        names = [names[str(i)] for i in range(len(names))]
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise ValueError(f'{path} has names: {names!r}: expected a list of texts')
    number = data.get('nc', len(names))
    if number != len(names) or len({*names}) < len(names):
        raise ValueError(
            f'{path} has nc: {number} and {names}: expected nc different names'
        )
    return names


def _images(
    root: Path, base: str, entries: str | list[str], findings: Findings
) -> list[Path]:
    """Return the images in folders, or those listed in text files."""
    images: dict[Path, None] = {}
    for entry in [entries] if isinstance(entries, str) else entries:
        place = _place(root, [root / str(base), root], str(entry), findings)
        if place is None:
            raise ValueError(f'{root} has no {entry}, which its data.yaml names')
        if place.is_dir():
            images |= dict.fromkeys(find_images(place))
        elif place.suffix.lower() in SUFFIXES:
            images[place] = None
        else:
            lines = place.read_text(encoding='utf-8-sig').splitlines()
            for number, line in enumerate(map(str.strip, lines), 1):
                bases = [place.parent, root / str(base), root]
                image = _place(root, bases, line, findings) if line else root
                if image is None:
                    raise ValueError(f'{place}:{number} names {line}, which is missing')
                images |= {image: None} if line else {}
    return [*images]


def _place(root: Path, bases: list[Path], name: str, findings: Findings) -> Path | None:
    """Return a file or folder that a YOLO file names, if it exists.

    Names from another machine, or Roboflow's ``../train/images``, are those below the
    folder of the data that have most folders at the end in common.
    """
    parts = PurePosixPath(name.replace('\\', '/')).parts
    for place in (Path(base, *parts) for base in bases):
        if place.exists():
            return place
    for i in range(1, len(parts)):
        if '..' not in parts[i:] and (place := Path(root, *parts[i:])).exists():
            if parts[:i] != ('..',):
                findings[MOVED].append(name)
            return place
    return None


def _label(image: Path, root: Path) -> Path:
    """Return the label file of an image: the last folder images becomes labels."""
    inside = image.relative_to(root) if image.is_relative_to(root) else image
    parts = [*inside.parts]
    if 'images' in parts[:-1]:
        last = len(parts) - 2 - parts[-2::-1].index('images')
        parts[last] = 'labels'
    return Path(root, *parts).with_suffix('.txt')


def _compare_labels(root: Path, found: dict[str, list], findings: Findings) -> None:
    """Add images without a label file, and label files without an image."""
    images = {root / image['file_name'] for s in found.values() for image, _ in s}
    labels = {_label(image, root) for image in images}
    folders = {label.parent for label in labels}
    exist = {
        p for folder in folders for p in folder.glob('*.txt') if p.name not in NO_TXT
    }
    findings[UNLABELLED] += sorted(
        i.name for i in images if _label(i, root) not in exist
    )
    findings[UNUSED] += sorted(p.name for p in exist - labels if not is_hidden(p.name))
    if not labels & exist:
        first = min(labels, default=root)
        raise ValueError(f'{root} has no label file of any image, such as {first}')


def _lines(label: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a label file that are not empty, with their places."""
    text = label.read_text(encoding='utf-8-sig') if label.is_file() else ''
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f'{label}:{number}', line


def _read_objects(
    image: Path, root: Path, num_classes: int, pose: bool
) -> tuple[dict, list]:
    """Return COCO's image and, per object, class, corners in pixels and is-box flag."""
    (height, width), objects = read_size(image), []
    for place, line in _lines(_label(image, root)):
        try:
            index, *values = map(float, line.split())
        except ValueError:
            index, values = -1, []
        values = values[:4] if pose else values
        box, polygon = len(values) == 4, len(values) > 5 and len(values) % 2 == 0
        right = index in range(num_classes) and (box or polygon)
        if not (right and -1e-3 < min(values) <= max(values) < 1.001):
            raise ValueError(
                f'{place} is {line[:50]!r}: expected a class from 0 to '
                f'{num_classes - 1} and a box (x, y, width, height) or a polygon of 3 '
                'or more points, in shares of the image from 0 to 1'
            )
        if box:
            x, y, w, h = (values[0], values[1], values[2] / 2, values[3] / 2)
            values = [x - w, y - h, x + w, y - h, x + w, y + h, x - w, y + h]
        points = np.array(values).reshape(-1, 2).clip(0, 1) * (width, height)
        objects.append((int(index), points, box))
    name = os.path.relpath(image, root)
    return dict(file_name=name, height=height, width=width), objects


def _as_coco(found: list[tuple[dict, list]], polygons: bool) -> dict:
    annotations = []
    for i, (_, objects) in enumerate(found):
        for label, points, _ in objects:
            x, y = points.T
            area = abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2
            box = [*points.min(0).tolist(), *np.ptp(points, axis=0).tolist()]
            outline = dict(segmentation=[points.ravel().tolist()]) if polygons else {}
            ids = dict(id=len(annotations) + 1, image_id=i, category_id=label + 1)
            shape = dict(bbox=box, area=float(area), iscrowd=0)
            annotations.append(ids | shape | outline)
    images = [dict(id=i, **image) for i, (image, _) in enumerate(found)]
    return dict(images=images, annotations=annotations)
