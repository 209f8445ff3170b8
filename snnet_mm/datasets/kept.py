"""Check that a data set keeps the objects of its annotation file."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmengine.fileio import load
from mmengine.logging import print_log

from snnet_mm.utils import check, refusal

from .folder_check import check_class_names


def innermost(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside wrappers such as RepeatDataset and ConcatDataset."""
    inside = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    for child in inside:
        if child is None:
            yield dataset
        else:
            yield from innermost(child)


def check_objects(dataset: Any, key: str) -> None:
    """Raise if class names are no list or not in a COCO file, or no object is kept.

    mmdet silently ignores objects of other classes.

    Args:
        dataset: Any data set, or wrapper of some.
        key: Its config key.
    """
    kept = []  # of each data set with objects, whether it keeps one
    for leaf in innermost(dataset):
        classes = getattr(leaf, 'metainfo', {}).get('classes') or ()
        check_class_names(classes, key)
        if hasattr(leaf, 'cat_ids') and getattr(leaf, 'ann_file', None):
            _check_categories(leaf, [*classes], f'{key}.metainfo.classes')
        infos = hasattr(leaf, 'get_data_info') and len(leaf) and leaf.get_data_info(0)
        if infos and 'instances' in infos:
            kept.append(any(map(_keeps_one, map(leaf.get_data_info, range(len(leaf))))))
    if kept and not any(kept):
        raise ValueError(
            'no object is kept of the data: all are of other classes, ignored, outside '
            'their image, or of no area (config keys: '
            f'{key}.ann_file, {key}.metainfo.classes)'
        )


def _check_categories(leaf: Any, classes: list[str], key: str) -> None:
    """Compare class names with the categories of a COCO file, which define labels."""
    backend = getattr(leaf, 'backend_args', None)
    content = load(leaf.ann_file, file_format='json', backend_args=backend)
    by_id = {c['id']: c['name'] for c in content['categories']}
    order = [by_id[i] for i in leaf.cat_ids if i in by_id]
    if len(order) < len(classes):
        unknown = [name for name in classes if name not in order]
        raise refusal(key, unknown, [*by_id.values()], misspelt=(unknown or [None])[0])
    twice = [name for name, n in Counter(order).items() if n > 1]
    expected = f'names that each belong to one category of {leaf.ann_file}'
    check(not twice or len(order) == len(classes), key, twice, expected)
    if order != classes:
        print_log(
            f'{leaf.ann_file} has the order of classes {order[:10]}, which is that of '
            f'labels: pictures and exports name them wrongly (config key: {key})',
            'current',
            level=30,
        )


def _keeps_one(info: dict) -> bool:
    return any(not x.get('ignore_flag') for x in info['instances'])
