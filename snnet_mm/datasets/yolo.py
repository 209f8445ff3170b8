"""Convert YOLO data sets of boxes or polygons to COCO's format."""

import os
from pathlib import Path

import numpy as np
import yaml

from .image_files import find_images, read_all, read_size


def yolo_to_coco(path: Path) -> dict[str, dict] | None:
    """Return a COCO dict for every split of a ``data.yaml``, or None for other files.

    File names are relative to the folder of ``path``. If any object is a polygon, boxes
    become polygons of four corners.
    """
    data = yaml.safe_load(path.read_text())
    if not (isinstance(data, dict) and {'names', 'train'} <= data.keys()):
        return None
    names = data['names']
    if isinstance(names, dict) and {*names} != {*range(len(names))}:
        expected = f'expected those of the classes 0 to {len(names) - 1}'
        raise ValueError(f'{path} has the names {names}: {expected}')
    names = [str(names[i]) for i in range(len(names))]
    splits = dict(train=data['train'])
    val = data.get('val') or data.get('valid') or data.get('test')
    if val and val != data['train']:
        splits['val'] = val
    found = {}
    for split, entries in splits.items():
        images = _images(path.parent, data.get('path') or '', entries)
        items = [(image, path.parent, len(names)) for image in images]
        found[split] = read_all(_read_objects, items)
    polygons = any(not box for s in found.values() for _, o in s for *_, box in o)
    categories = [dict(id=i, name=name) for i, name in enumerate(names, 1)]
    return {
        split: dict(_as_coco(images, polygons), categories=categories)
        for split, images in found.items()
    }


def _images(root: Path, base: str, entries: str | list[str]) -> list[Path]:
    """Return the images in folders, or those listed in text files."""
    images = []
    for entry in [entries] if isinstance(entries, str) else entries:
        # Roboflow exports specify '../train/images' for a folder beside data.yaml.
        options = root / base / entry, root / entry, root / entry.removeprefix('../')
        place = next((p for p in options if p.exists()), None)
        if place is None:
            raise ValueError(f'{root} has no {entry}, which its data.yaml names')
        listed = place.read_text().split() if place.is_file() else ()
        images += [place.parent / name for name in listed] or find_images(place)
    return images


def _label(image: Path) -> Path:
    """Return the label file of an image: the last folder images becomes labels."""
    before, folder, after = str(image).rpartition(f'{os.sep}images{os.sep}')
    folder = folder.replace('images', 'labels')
    return Path(before + folder + after).with_suffix('.txt')


def _read_objects(image: Path, root: Path, num_classes: int) -> tuple[dict, list]:
    """Return COCO's image and, per object, class, corners in pixels and is-box flag."""
    height, width = read_size(image)
    label, objects = _label(image), []
    lines = label.read_text().splitlines() if label.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            index, *values = map(float, line.split() or [0])
        except ValueError:
            index, values = -1, []
        box, polygon = len(values) == 4, len(values) > 5 and len(values) % 2 == 0
        right = index in range(num_classes) and (box or polygon)
        if line.strip() and not (right and -1e-3 < min(values) <= max(values) < 1.001):
            raise ValueError(
                f'{label}:{number} is {line[:50]!r}: expected a class from 0 to '
                f'{num_classes - 1} and a box (x, y, width, height) or a polygon of 3 '
                'or more points, in shares of the image from 0 to 1'
            )
        if box:
            x, y, w, h = (values[0], values[1], values[2] / 2, values[3] / 2)
            values = [x - w, y - h, x + w, y - h, x + w, y + h, x - w, y + h]
        if values:
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
