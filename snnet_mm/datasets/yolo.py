"""Convert YOLO data sets of boxes or polygons to COCO's format.

``supervision`` converts them too, but draws each polygon as a mask of the whole image
(3.2 GB for 40 images of 1920x1080 with 20 polygons), returns outlines of whole pixels,
and takes boxes in pixels for shares of the image.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from .image_files import find_images, read_all, read_size
from .labelled_folder import Findings

MOVED = 'paths do not exist here: read by their last folders below the data'
UNLABELLED = 'label files of images do not exist: these are background'


def read_yolo(root: Path, findings: Findings) -> dict[str, dict] | None:
    """Return a COCO dict for every split of a ``data.yaml``, or None without one.

    Args:
        root: The folder; the names of images are relative to it.
        findings: Collects what is not read as it is written.
    """
    files = {}
    for path in sorted([*root.glob('*.yaml'), *root.glob('*.yml')]):
        try:
            # All values are texts: a class may be called no.
            data = yaml.load(path.read_text(encoding='utf-8-sig'), yaml.BaseLoader)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(f'{path} is no YAML: {error}') from error
        if isinstance(data, dict) and {'names', 'train'} <= data.keys():
            files[path] = data
    if len(files) > 1:
        raise ValueError(f'{root} has {[*map(str, files)]}: expected one file of YOLO')
    for path, data in files.items():
        names, contents = _class_names(path, data), {}
        entries = dict(train=data['train'], val=data.get('val') or data.get('valid'))
        for split, folders in dict(entries, test=data.get('test')).items():
            folders = [folders] if isinstance(folders, str) else folders or []
            places = [_place(root, data.get('path', ''), f, findings) for f in folders]
            images = dict.fromkeys(i for place in places for i in find_images(place))
            items = [(i, root, len(names), 'kpt_shape' in data) for i in images]
            if folders:
                found = read_all(_read_label, items)
                contents[split] = _as_coco(found, names, findings)
        return contents
    return None


def _class_names(path: Path, data: Mapping[str, Any]) -> list[str]:
    names, number = data['names'], data.get('nc')
    if isinstance(names, dict):
        names = [names.get(str(i), '') for i in range(len(names))]
    right = isinstance(names, list) and all(isinstance(n, str) and n for n in names)
    if not right or len({*names}) < len(names) or number not in (None, str(len(names))):
        raise ValueError(
            f'{path} has names: {data["names"]} and nc: {number}: expected nc '
            'different names, of the classes 0, 1, ...'
        )
    return names


def _place(root: Path, base: str, name: str, findings: Findings) -> Path:
    """Return a folder that a YOLO file names.

    Names from another machine, or Roboflow's ``../train/images``, are those below the
    root that have most folders at the end in common.
    """
    parts = PurePosixPath(name.replace('\\', '/')).parts
    named = [Path(root, base, *parts), Path(root, *parts)]
    cuts = [i for i in range(1, len(parts)) if '..' not in parts[i:]]
    below = [Path(root, *parts[i:]) for i in cuts]
    for place in (p for p in named + below if p.is_dir()):
        findings[MOVED] += [] if place in named or parts[0] == '..' else [name]
        return place
    raise ValueError(f'{root} has no folder {name}, which its YAML file names')


def _read_label(
    image: Path, root: Path, num_classes: int, pose: bool
) -> tuple[dict, list[dict], list[str]]:
    """Return COCO's image and its objects without ids, and a label file if missing."""
    height, width = read_size(image)
    name = os.path.relpath(image, root)
    # The last folder called images becomes labels.
    inside = '/labels/'.join(f'/{name}'.rsplit('/images/', 1))[1:]
    label, objects = Path(root, inside).with_suffix('.txt'), []
    text = label.read_text(encoding='utf-8-sig') if label.is_file() else ''
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            index, *values = map(float, line.split())
        except ValueError:
            index, values = -1, []
        values = values[:4] if pose else values
        box, polygon = len(values) == 4, len(values) > 5 and len(values) % 2 == 0
        right = index in range(num_classes) and (box or polygon)
        if not right or not -1e-3 < min(values) <= max(values) < 1.001:
            raise ValueError(
                f'{label}:{number} is {line[:50]!r}: expected a class from 0 to '
                f'{num_classes - 1} and a box (x, y, width, height) or a polygon of 3 '
                'or more points, in shares of the image from 0 to 1'
            )
        if box:
            x, y, w, h = (values[0], values[1], values[2] / 2, values[3] / 2)
            values = [x - w, y - h, x + w, y - h, x + w, y + h, x - w, y + h]
        points = np.array(values).reshape(-1, 2).clip(0, 1) * (width, height)
        x, y = points.T
        area = float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)
        shape = dict(bbox=[*points.min(0).tolist(), *np.ptp(points, axis=0).tolist()])
        shape |= dict(segmentation=[points.ravel().tolist()]) if polygon else {}
        objects.append(dict(category_id=int(index) + 1, iscrowd=0, area=area, **shape))
    missing = [] if label.is_file() else [str(label)]
    return dict(file_name=name, height=height, width=width), objects, missing


def _as_coco(found: Sequence[tuple], names: Sequence[str], findings: Findings) -> dict:
    for *_, missing in found:
        findings[UNLABELLED] += missing
    objects = [dict(x, image_id=i) for i, (_, xs, _) in enumerate(found) for x in xs]
    return dict(
        images=[dict(image, id=i) for i, (image, *_) in enumerate(found)],
        annotations=[dict(x, id=i) for i, x in enumerate(objects, 1)],
        categories=[dict(id=i, name=name) for i, name in enumerate(names, 1)],
    )
