"""Validate data folders, annotation files, class names and objects of data sets."""

import os
import os.path as osp
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.fileio import load
from mmengine.logging import print_log

from snnet_mm.utils import check, dicts_in, refusal
from snnet_mm.utils.configs import step_name

MAPS = 'seg_map_path', 'depth_map_path'
ONE_NAME = "a list of names; a tuple of one name needs a comma, ('car',)"


def check_data_folders(dataloader: Mapping | None, key: str) -> None:
    """Raise if a dataloader's local folders or annotation file are missing or empty.

    Class names must be a list, or a file of names, as mm allows.

    mmdet's instance configs inherit a ``seg`` prefix, and a test may need no labels:
    folders of maps are checked only if the pipeline loads them.
    """
    dataset = (dataloader or {}).get('dataset', {})
    for part in dicts_in(dataset):
        metainfo = part.get('metainfo')
        classes = metainfo.get('classes') if isinstance(metainfo, Mapping) else None
        ok = not isinstance(classes, str) or osp.isfile(classes)
        check(ok, f'{key}.dataset.metainfo.classes', classes, ONE_NAME)
    root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix', {})
    check_annotation_file(dataset, f'{key}.dataset', root)
    # The single prefix of a classification data set has no name.
    named = prefixes if isinstance(prefixes, Mapping) else {None: prefixes}
    steps = dataset.get('pipeline', ())
    for name, prefix in named.items():
        folder = osp.join(root, prefix or '')
        unused = name == 'seg' and not any(
            'Panoptic' in str(step.get('type')) or step.get('with_seg')
            for step in steps
        )
        loads = [s for s in map(step_name, steps) if s.startswith('Load')]
        images_alone = loads and all('Image' in kind for kind in loads)
        unused |= name in MAPS and bool(images_alone)
        if folder and '://' not in folder and not unused:
            keys = f'{key}.dataset.data_root, {key}.dataset.data_prefix'
            keys += f'.{name}' if name else ''
            ok = osp.isdir(folder) and os.listdir(folder)
            check(ok, keys, folder, 'a folder with data, or a link to one')


def check_annotation_file(config: Mapping | None, key: str, root: str = '') -> None:
    """Raise if a local ``ann_file`` is missing or empty."""
    name = config.get('ann_file') if isinstance(config, Mapping) else None
    file = osp.join(root, name or '')
    if name and '://' not in file:
        keys = f'{key}.data_root, {key}.ann_file' if root else f'{key}.ann_file'
        ok = osp.isfile(file) and osp.getsize(file)
        check(ok, keys, file, 'a file with annotations')


def leaf_datasets(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside wrappers such as RepeatDataset and ConcatDataset."""
    inside = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    for child in inside:
        if child is None:
            yield dataset
        else:
            yield from leaf_datasets(child)


def check_objects(dataset: Any, key: str) -> None:
    """Raise if class names are not in a COCO file, or no object is kept.

    mmdet silently ignores objects of other classes. ``key`` is the config key of the
    data set, which may be a wrapper of some.
    """
    kept = []  # of each data set with objects, whether it keeps one
    for leaf in leaf_datasets(dataset):
        check_categories(leaf, key)
        infos = hasattr(leaf, 'get_data_info') and len(leaf) and leaf.get_data_info(0)
        if infos and 'instances' in infos:
            objects = (leaf.get_data_info(i)['instances'] for i in range(len(leaf)))
            kept.append(any(not x.get('ignore_flag') for xs in objects for x in xs))
    if kept and not any(kept):
        raise ValueError(
            'no object is kept of the data: all are of other classes, ignored, outside '
            'their image, or of no area (config keys: '
            f'{key}.ann_file, {key}.metainfo.classes)'
        )


def check_categories(dataset: Any, key: str) -> None:
    """Compare class names with the folders or categories that define labels.

    They are the sorted folders of an mmpretrain data set, or those of a COCO file.
    """
    classes = [*(getattr(dataset, 'metainfo', {}).get('classes') or ())]
    folders = getattr(dataset, 'folder_to_idx', None) or {}
    by_name = {name.casefold(): folders[name] for name in sorted(folders)}
    for i, name in enumerate(classes):
        at = by_name.get(str(name).casefold(), i)
        expected = f'names in the order of the folders, {[*folders]}: {name!r} is {at}'
        check(at == i, f'{key}.metainfo.classes', classes, expected)
    ann_file = hasattr(dataset, 'cat_ids') and getattr(dataset, 'ann_file', None)
    if not classes or not ann_file:
        return
    key = f'{key}.metainfo.classes'
    backend = getattr(dataset, 'backend_args', None)
    content = load(ann_file, file_format='json', backend_args=backend)
    by_id = {c['id']: c['name'] for c in content['categories']}
    order = [by_id[i] for i in dataset.cat_ids if i in by_id]
    if len(order) < len(classes):
        unknown = [name for name in classes if name not in order]
        raise refusal(key, unknown, [*by_id.values()], misspelt=(unknown or [None])[0])
    twice = [name for name, n in Counter(order).items() if n > 1]
    expected = f'names that each belong to one category of {ann_file}'
    check(not twice or len(order) == len(classes), key, twice, expected)
    if order != classes:
        print_log(
            f'{ann_file} has the order of classes {order[:10]}, which is that of '
            f'labels: pictures and exports name them wrongly (config key: {key})',
            'current',
            level=30,
        )
