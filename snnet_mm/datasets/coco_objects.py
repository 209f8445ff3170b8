"""Bring COCO dicts into the form that mmdet and pycocotools read as it is meant."""

import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from snnet_mm.utils import is_number

from .labelled_folder import Findings

BACKGROUND = {'_background_', '__background__', 'background', '__ignore__', '_ignore_'}
DERIVED_BOX = 'objects without a box take that of their outline'
DERIVED_AREA = 'objects with no area above 0 take that of their outline or box'
NO_BOX = 'objects without a finite box are left out'
FLAT = 'outlines are not lists of polygons (x, y, x, y, ...): converted'
THIN = 'outlines have fewer than 3 points'
RENUMBERED = (
    'files have annotation ids that are missing, repeated or 0, of which pycocotools '
)
RENUMBERED += 'loses objects: numbered anew'
KEYPOINTS = 'objects have keypoints, which are not read'
ROTATED = 'boxes have a rotation, which is not read'
NO_OUTLINE = 'objects without an outline are left out, because most have one'
OUTLINES = 'objects have an outline, not used because most have none: boxes only'
# Why training keeps no object; the words of mmdet's CocoDataset.
DROPPED = dict(
    ignore='objects are left out of training, because of "ignore"',
    outside='objects are left out of training, because they are outside their image',
    small='objects are left out of training, because a side has less than 1 pixel',
    crowd='objects are ignored in training, because of "iscrowd"',
)


def unify_categories(
    contents: Mapping[str, tuple[dict, Any]], findings: Findings
) -> dict[int, str]:
    """Let all splits have the training file's categories; return names by id.

    Categories that own no object and group others, or stand for the background, are
    left out. Categories of one name become one.
    """
    ids = {s: _category_ids(where, c) for s, (c, where) in contents.items()}
    used = {
        ids[s].get(x.get('category_id'))
        for s in ids
        for x in contents[s][0]['annotations']
    }
    content, where = contents['train']
    groups = _groups(content['categories'], used)
    findings['categories without an object group others: no classes'] += groups
    names = {n: i for i, n in reversed(ids['train'].items()) if n not in groups}
    repeated = Counter(n for n in ids['train'].values() if n in names)
    twice = [name for name, number in repeated.items() if number > 1]
    findings['names belong to several categories: one class each'] += twice
    by_id = {i: n for i, n in ids['train'].items() if names.get(n) == i}
    for split, (content, where) in contents.items():
        for x in content['annotations']:
            name = ids[split].get(x.get('category_id'))
            if name not in names:
                raise ValueError(
                    f'{where} has an annotation {str(x)[:120]} of the category '
                    f'{name or x.get("category_id")!r}: expected one of the training '
                    f'file, {by_id}'
                )
            if x['category_id'] != names[name]:
                x['category_id'] = names[name]
        found = {c['id']: c['name'] for c in content['categories']}
        if [*found.items()] != [*by_id.items()]:
            content['categories'] = [dict(id=i, name=n) for i, n in by_id.items()]
    return by_id


def _category_ids(where: Any, content: dict) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for category in content['categories']:
        right = isinstance(category, dict) and {'id', 'name'} <= category.keys()
        if not right or category['id'] in found:
            raise ValueError(
                f'{where} has the category {category}: expected a name and an id of '
                'its own'
            )
        found[category['id']] = str(category['name'])
    return found


def _groups(categories: list[dict], used: set) -> list[str]:
    """Return names of categories that are no classes, such as Roboflow's first."""
    above = Counter(c.get('supercategory') for c in categories)
    return [
        str(c['name'])
        for c in categories
        if c['name'] not in used
        and (
            str(c['name']).lower() in BACKGROUND
            or above[c['name']] > (c.get('supercategory') == c['name'])
            or (
                c.get('supercategory') == 'none'
                and above['none'] == 1 < len(categories)
            )
        )
    ]


def clean_objects(
    where: Any, content: dict, images: Mapping[Any, dict], findings: Findings
) -> None:
    """Replace the annotations of a COCO dict by those that training reads.

    Args:
        where: Name of the file, for messages.
        content: COCO dict, changed in place.
        images: Image entries by the id that annotations give, with sizes.
        findings: Collects what was changed or cannot be used.
    """
    objects = []
    for number, x in enumerate(content['annotations']):
        name = f'id {x.get("id", f"of annotation {number}")}'
        if x.get('image_id') not in images:
            raise ValueError(
                f'{where} has an annotation {str(x)[:120]}: expected the key image_id, '
                'an id of an image'
            )
        image = images[x['image_id']]
        try:
            shape = _read_shape(x, image, name, findings)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f'{where}: annotation {name}: {error}') from error
        if shape is not None:
            crowd = x.get('iscrowd', 0)
            objects.append(x | shape | dict(image_id=image['id'], iscrowd=crowd))
    _check_unit(where, objects, images)
    content['annotations'] = objects


def number_objects(where: Any, content: dict, findings: Findings) -> None:
    """Give every annotation an id of its own, from 1 on, unless all have one."""
    ids = [x.get('id') for x in content['annotations']]
    if len({*map(str, ids)}) < len(ids) or {0, None} & {*ids}:
        findings[RENUMBERED].append(os.path.basename(str(where)))
        for i, x in enumerate(content['annotations'], 1):
            x['id'] = i


def _read_shape(x: dict, image: dict, name: str, findings: Findings) -> dict | None:
    """Return box, area and outline of an annotation, or None if it has no shape."""
    outline = _read_outline(x.get('segmentation'), image, name, findings)
    box = x.get('bbox')
    if not box and outline:
        box = _box_of(outline, image)
        findings[DERIVED_BOX].append(name)
    numbers = isinstance(box, list) and [v for v in box if isinstance(v, int | float)]
    if box and (len(numbers or ()) != 4 or len(box) != 4):
        raise ValueError(f'the box is {str(box)[:60]}: expected x, y, width, height')
    if not box or not all(map(math.isfinite, box)):
        findings[NO_BOX].append(name)
        return None
    area = x.get('area')
    if not is_number(area) or area <= 0:
        area = _area_of(outline, image) if outline else box[2] * box[3]
        if area > 0:
            findings[DERIVED_AREA].append(name)
    if any(x.get('keypoints') or ()):
        findings[KEYPOINTS].append(name)
    extra = x.get('attributes')
    if isinstance(extra, dict) and is_number(r := extra.get('rotation')) and r % 360:
        findings[ROTATED].append(name)
    shape = dict(bbox=box, area=area)
    return shape | (dict(segmentation=outline or []) if 'segmentation' in x else {})


def _read_outline(
    value: Any, image: dict, name: str, findings: Findings
) -> list[list] | dict | None:
    """Return polygons of 3 or more points, or run lengths; None if there are none."""
    if isinstance(value, dict) and value:
        return _check_run_lengths(value, image)
    if not value:
        return None
    if not isinstance(value, list):
        raise ValueError(f'the outline is {str(value)[:60]}: expected polygons')
    polygons = _flatten(value)
    if polygons != value:
        findings[FLAT].append(name)
    kept = [
        p
        for p in polygons
        if len(p) >= 6 and len(p) % 2 == 0 and all(map(is_number, p))
    ]
    if len(kept) < len(polygons):
        findings[THIN].append(name)
    return kept


def _flatten(value: list) -> list[list]:
    """Return polygons as flat lists of coordinates, from all nestings in use."""
    if not isinstance(value[0], list):  # x, y, x, y, ...
        value = [value]
    elif all(isinstance(p, list) and len(p) == 2 for p in value) and len(value) > 2:
        value = [value]  # [x, y], [x, y], ...
    polygons = [
        [v for point in p for v in point] if p and isinstance(p[0], list) else p
        for p in value
    ]
    for p in polygons:
        if not all(isinstance(v, int | float) for v in p):
            raise ValueError(f'the outline has {str(p)[:60]}: expected x, y, x, y, ...')
    return polygons


def _check_run_lengths(value: dict, image: dict) -> dict:
    size = [image['height'], image['width']]
    counts = value.get('counts')
    right = [*value.get('size', ())] == size and isinstance(counts, list | str)
    if not right or (isinstance(counts, list) and sum(counts) != size[0] * size[1]):
        raise ValueError(
            f'the run lengths are {str(value)[:80]}: expected counts, and size={size} '
            'as its image has'
        )
    return value


def _run_lengths(outline: dict) -> dict:
    from pycocotools import mask

    if isinstance(outline['counts'], str):
        return outline
    return mask.frPyObjects(outline, *outline['size'])


def _box_of(outline: list[list] | dict, image: dict) -> list[float]:
    if isinstance(outline, dict):
        from pycocotools import mask

        return mask.toBbox(_run_lengths(outline)).tolist()
    x, y = ([v for p in outline for v in p[i::2]] for i in (0, 1))
    return [min(x), min(y), max(x) - min(x), max(y) - min(y)]


def _area_of(outline: list[list] | dict, image: dict) -> float:
    if isinstance(outline, dict):
        from pycocotools import mask

        return float(mask.area(_run_lengths(outline)))
    return sum(polygon_area(p[::2], p[1::2]) for p in outline)


def polygon_area(x: list[float], y: list[float]) -> float:
    """Return the area of a polygon by its corners (shoelace formula)."""
    after = zip(x, y, x[1:] + x[:1], y[1:] + y[:1], strict=True)
    return abs(sum(a * d - c * b for a, b, c, d in after)) / 2


def _check_unit(where: Any, objects: list[dict], images: Mapping[Any, dict]) -> None:
    """Raise if boxes are shares of the image, or corners, instead of x, y, w, h."""
    boxes = [x['bbox'] for x in objects]
    if boxes and max(map(max, boxes)) <= 1:
        raise ValueError(
            f'{where} has boxes such as {boxes[0]}, shares of the image: expected '
            'pixels: x, y, width, height'
        )
    by_id = {image['id']: image for image in images.values()}
    sizes = [
        (by_id[x['image_id']]['width'], by_id[x['image_id']]['height']) for x in objects
    ]
    pairs = [*zip(boxes, sizes, strict=True)]
    corners = all(x < r <= w and y < b <= h for (x, y, r, b), (w, h) in pairs)
    beyond = [
        box
        for box, (w, h) in pairs
        if box[0] + box[2] > w + 1 or box[1] + box[3] > h + 1
    ]
    if corners and len(beyond) * 2 > len(pairs):
        raise ValueError(
            f'{where} has boxes such as {beyond[0]}, which reach out of their images '
            'unless they are two corners: expected x, y, width, height'
        )


def why_dropped(x: dict, image: dict) -> str | None:
    """Return the key of ``DROPPED`` by which mmdet leaves out an object, if any."""
    left, top, width, height = x['bbox']
    across = min(left + width, image['width']) - max(left, 0)
    along = min(top + height, image['height']) - max(top, 0)
    if x.get('ignore'):
        return 'ignore'
    if across <= 0 or along <= 0:
        return 'outside' if width >= 1 and height >= 1 else 'small'
    if width < 1 or height < 1 or x['area'] <= 0:
        return 'small'
    return 'crowd' if x['iscrowd'] else None


def choose_outlines(contents: Mapping[str, dict], findings: Findings) -> bool:
    """Return whether most objects have an outline; leave out those that differ."""
    objects = [x for content in contents.values() for x in content['annotations']]
    some = [x for x in objects if x.get('segmentation')]
    names = {id(x): f'id {x.get("id")}' for x in objects}
    if 2 * len(some) < len(objects):
        findings[OUTLINES] += [names[id(x)] for x in some]
        return False
    for content in contents.values():
        kept = [x for x in content['annotations'] if x.get('segmentation')]
        if len(kept) < len(content['annotations']):
            other = [
                names[id(x)]
                for x in content['annotations']
                if not x.get('segmentation')
            ]
            findings[NO_OUTLINE] += other
            content['annotations'] = kept
    return bool(some)
