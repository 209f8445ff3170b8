import json

import pytest
from labelled_folders import box, write_coco

from snnet_mm.datasets.folders import read_folder

TRIANGLE = [6, 4, 36, 4, 36, 24]
CIRCLE = dict(size=[40, 60], counts=[240, 20, 2140])  # half of a column


def read(root, *objects, categories=None, file='train', **kwargs):
    """Read a file with more objects; return what is found and these objects."""
    write_coco(root, **kwargs)
    path = root / f'annotations/instances_{file}.json'
    content = json.loads(path.read_text())
    content['annotations'] += objects
    content['categories'] = categories or content['categories']
    path.write_text(json.dumps(content))
    found = read_folder(root, 'det')
    content = found.splits[file].annotations or content
    return found, content['annotations'][4:]


@pytest.mark.parametrize(
    ('change', 'expected', 'note'),
    [
        (dict(area=0), dict(area=600), 'objects with no area'),
        (dict(area=float('nan')), dict(area=600), 'objects with no area'),
        (dict(area=None), dict(area=600), 'objects with no area'),
        (dict(iscrowd=None), dict(iscrowd=0), None),
        (dict(id=1), dict(id=5), 'files have annotation ids that are missing'),
        (dict(id=0), dict(id=5), 'files have annotation ids that are missing'),
        (dict(id=None), dict(id=5), 'files have annotation ids that are missing'),
        (dict(attributes=dict(rotation=30)), {}, 'boxes have a rotation, which'),
        (dict(attributes=dict(rotation=0.0)), {}, None),
    ],
)
def test_clean_objects_values_that_would_be_misread(tmp_path, change, expected, note):
    first = {k: v for k, v in (box(5, 0) | change).items() if v is not None}
    found, (x,) = read(tmp_path, first)
    assert x == x | box(5, 0, **{k: v for k, v in change.items() if v == v}) | expected
    assert found.counts == [9, 0]
    others = [n for n in found.notes if 'without an object' not in n]
    assert len(others) == bool(note)
    assert all(note in n and n.startswith('1 ') for n in others)


@pytest.mark.parametrize(
    ('outline', 'expected'),
    [
        (TRIANGLE, [TRIANGLE]),
        ([TRIANGLE, [1, 1]], [TRIANGLE]),
        ([TRIANGLE, TRIANGLE], [TRIANGLE, TRIANGLE]),
        (CIRCLE, CIRCLE),
    ],
)
def test_clean_objects_outlines(tmp_path, outline, expected):
    x = box(5, 0, segmentation=outline)
    found, (x,) = read(tmp_path, x, segmentation=[TRIANGLE])
    assert x['segmentation'] == expected
    assert found.facts['with_mask']
    assert found.counts == [9, 0]


@pytest.mark.parametrize('outline', [[], None, [[6, 4, 36, 24]], [[1] * 7]])
def test_choose_outlines_follows_most_objects(tmp_path, outline):
    x = box(5, 0, segmentation=outline)
    found, objects = read(tmp_path, x, segmentation=[TRIANGLE])
    assert (found.facts['with_mask'], found.counts, objects) == (True, [8, 0], [])
    assert any('1 objects without an outline are left out' in n for n in found.notes)
    found, (x,) = read(tmp_path / 'few', box(5, 0, segmentation=[TRIANGLE]))
    assert (found.facts['with_mask'], found.counts) == (False, [9, 0])
    assert any('1 objects have an outline, not used' in n for n in found.notes)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(bbox=[1, 2, 3, 4, 0.5]), r'id 5: the box is \[1, 2, 3, 4, 0.5\]: expect'),
        (dict(bbox=[5, 5, float('inf'), 5]), 'id 5: the box is '),
        (dict(bbox=[]), r'id 5: the box is \[\]: expected x, y, width, height'),
        (dict(bbox=['1', '2', '3', '4']), 'id 5: the box is '),
        (dict(segmentation=[dict(x=1, y=2)]), 'id 5: the outline is '),
        (dict(segmentation=[[[6, 4], [36, 4]]]), 'id 5: the outline is .*expected pol'),
        (dict(segmentation='1 2 3 4'), 'id 5: the outline is 1 2 3 4: expected poly'),
        (dict(segmentation=dict(CIRCLE, size=[60, 40])), r'id 5: .*size=\[40, 60\]'),
        (dict(segmentation=dict(CIRCLE, counts=[7])), 'id 5: the run lengths are'),
    ],
)
def test_clean_objects_unreadable(tmp_path, change, message):
    with pytest.raises(ValueError, match=f'instances_train.json: annotation {message}'):
        read(tmp_path, box(5, 0, **change))


@pytest.mark.parametrize(
    ('bbox', 'message'),
    [
        ([0.1, 0.1, 0.5, 0.5], 'shares of the image: expected pixels'),
        ([30, 20, 58, 38], 'unless they are two corners: expected x, y, width'),
    ],
)
def test_clean_objects_boxes_in_another_unit(tmp_path, bbox, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, bbox=bbox)


CAR, PERSON = dict(id=7, name='car'), dict(id=3, name='person')


@pytest.mark.parametrize(
    'group',
    [
        dict(id=0, name='cars-abc', supercategory='none'),
        dict(id=0, name='_background_', supercategory=None),
        dict(id=0, name='things'),
    ],
)
def test_unify_categories_groups_are_no_classes(tmp_path, group):
    others = [dict(c, supercategory='things') for c in (CAR, PERSON)]
    found, _ = read(tmp_path, categories=[group, *others])
    assert (found.classes, found.counts) == (['car', 'person'], [8, 0])
    categories = found.splits['train'].annotations['categories']
    assert [c['name'] for c in categories] == ['car', 'person']
    assert any(n.endswith(f'no classes: {group["name"]}') for n in found.notes)
    # With an object it is one.
    found, _ = read(tmp_path / 'used', box(5, 0, 0), categories=[group, *others])
    assert found.counts == [1, 8, 0]


def test_unify_categories_equal_names(tmp_path):
    with pytest.raises(ValueError, match="9: 'car'.*expected different names"):
        read(tmp_path, box(5, 0, 9), categories=[CAR, PERSON, dict(id=9, name='car')])


def test_unify_categories_of_validation(tmp_path):
    """Its own may have another order and other ids."""
    categories = [
        dict(id=7, name='person'),
        dict(id=1, name='car'),
        dict(id=2, name='x'),
    ]
    found, (x,) = read(tmp_path, box(5, 0, 1), categories=categories, file='val')
    assert (found.classes, found.counts) == (['car', 'person'], [5, 4])
    written = found.splits['val'].annotations
    assert written['categories'] == [CAR, PERSON]
    assert [a['category_id'] for a in written['annotations']] == [3, 3, 3, 3, 7]
    assert found.splits['train'].annotations is None
