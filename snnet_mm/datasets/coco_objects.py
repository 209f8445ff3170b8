"""Bring COCO dicts into the form that mmdet and pycocotools read as it is meant."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from snnet_mm.utils import is_number

from .labelled_folder import Findings

BACKGROUND = {'_background_', '__background__', 'background', '__ignore__', '_ignore_'}
DERIVED_AREA = 'objects with no area above 0 take that of their box'
THIN = 'outlines have parts of fewer than 3 points, left out'
RENUMBERED = (
    'files have annotation ids that are missing, repeated or 0, of which pycocotools '
    'loses objects: numbered anew'
)
ROTATED = 'boxes have a rotation, which is not read'
NO_OUTLINE = 'objects without an outline are left out, because most have one'
OUTLINES = 'objects have an outline, not used because most have none: boxes only'


def unify_categories(
    contents: Mapping[str, tuple[dict, Any]], findings: Findings
) -> dict[int, str]:
    """Let all splits have the training file's categories; return names by id.

    Categories that own no object and group others, or stand for the background, are
    left out.
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
    names = {i: n for i, n in ids['train'].items() if n not in groups}
    by_name = {n: i for i, n in names.items()}
    if len(by_name) < len(names):
        raise ValueError(
            f'{where} has the categories {names}: expected different names'
        )
    for split, (content, where) in contents.items():
        for x in content['annotations']:
            name = ids[split].get(x.get('category_id'))
            if name not in by_name:
                raise ValueError(
                    f'{where} has an annotation {str(x)[:120]} of the category '
                    f'{name or x.get("category_id")!r}: expected one of the training '
                    f'file, {names}'
                )
            x['category_id'] = by_name[name]
        if [(c['id'], c['name']) for c in content['categories']] != [*names.items()]:
            content['categories'] = [dict(id=i, name=n) for i, n in names.items()]
    return names


def _category_ids(where: Any, content: dict) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for category in content['categories']:
        if not {'id', 'name'} <= category.keys() or category['id'] in found:
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


def clean_objects(where: Any, content: dict, findings: Findings) -> None:
    """Check the annotations of a COCO dict, and correct what training would misread.

    Args:
        where: Name of the file, for messages.
        content: COCO dict, changed in place; its images have sizes.
        findings: Collects what was changed or cannot be used.
    """
    images = {image['id']: image for image in content['images']}
    for number, x in enumerate(content['annotations']):
        name = f'id {x.get("id", f"of annotation {number}")}'
        try:
            if x.get('image_id') not in images:
                raise ValueError(f'{str(x)[:120]}: expected image_id, that of an image')
            _clean(x, images[x['image_id']], name, findings)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f'{where}: annotation {name}: {error}') from error
    _check_unit(where, content['annotations'], images)


def number_objects(where: Any, content: dict, findings: Findings) -> None:
    """Give every annotation an id of its own, from 1 on, unless all have one."""
    ids = [x.get('id') for x in content['annotations']]
    if len({*map(str, ids)}) < len(ids) or {0, None} & {*ids}:
        findings[RENUMBERED].append(os.path.basename(str(where)))
        for i, x in enumerate(content['annotations'], 1):
            x['id'] = i


def _clean(x: dict, image: dict, name: str, findings: Findings) -> None:
    """Check box and outline of an annotation; derive a missing area."""
    outline = x.get('segmentation')
    if isinstance(outline, dict) and outline:
        _check_run_lengths(outline, image)
    elif outline:
        x['segmentation'] = _read_polygons(outline, name, findings)
    box = x.get('bbox')
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError(f'the box is {str(box)[:60]}: expected x, y, width, height')
    if not is_number(x.get('area')) or x['area'] <= 0:
        x['area'] = box[2] * box[3]
        findings[DERIVED_AREA] += [name] if x['area'] > 0 else []
    extra = x.get('attributes')
    if isinstance(extra, dict) and is_number(r := extra.get('rotation')) and r % 360:
        findings[ROTATED].append(name)
    x.setdefault('iscrowd', 0)


def _read_polygons(value: Any, name: str, findings: Findings) -> list[list]:
    """Return the polygons of 3 or more points."""
    if isinstance(value, list) and is_number(value[0]):
        value = [value]  # VIA writes a single polygon so
    if not isinstance(value, list) or any(
        not isinstance(p, list) or not all(map(is_number, p)) for p in value
    ):
        raise ValueError(
            f'the outline is {str(value)[:60]}: expected polygons, [[x, y, x, y, ...]]'
        )
    kept = [p for p in value if len(p) >= 6 and len(p) % 2 == 0]
    findings[THIN] += [name] if len(kept) < len(value) else []
    return kept


def _check_run_lengths(value: dict, image: dict) -> None:
    size, counts = [image['height'], image['width']], value.get('counts')
    right = [*value.get('size', ())] == size and isinstance(counts, list | str)
    if not right or (isinstance(counts, list) and sum(counts) != size[0] * size[1]):
        raise ValueError(
            f'the run lengths are {str(value)[:80]}: expected counts, and size={size} '
            'as its image has'
        )


def _check_unit(where: Any, objects: list[dict], images: Mapping[Any, dict]) -> None:
    """Raise if boxes are shares of the image, or corners, instead of x, y, w, h."""
    boxes = [x['bbox'] for x in objects]
    if boxes and max(map(max, boxes)) <= 1:
        raise ValueError(
            f'{where} has boxes such as {boxes[0]}, shares of the image: expected '
            'pixels: x, y, width, height'
        )
    sizes = [
        (images[x['image_id']]['width'], images[x['image_id']]['height'])
        for x in objects
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


def choose_outlines(contents: Sequence[dict], findings: Findings) -> bool:
    """Return whether most objects have an outline; leave out those without, if so."""
    objects = [x for content in contents for x in content['annotations']]
    with_mask = (
        2 * sum(bool(x.get('segmentation')) for x in objects) >= len(objects) > 0
    )
    odd = [x for x in objects if bool(x.get('segmentation')) != with_mask]
    what = NO_OUTLINE if with_mask else OUTLINES
    findings[what] += [f'id {x.get("id")}' for x in odd]
    for content in contents if with_mask and odd else ():
        kept = [x for x in content['annotations'] if x.get('segmentation')]
        content['annotations'] = kept
    return with_mask
