"""Validate the data folders of a config before anything is built."""

import os
import os.path as osp
from collections.abc import Mapping

from snnet_mm.utils import check, dicts_in

ONE_NAME = "a list of names; a tuple of one name needs a comma, ('car',)"


def check_data_folders(dataloader: Mapping | None, key: str) -> None:
    """Raise if a dataloader's local folders or annotation file are missing or empty.

    Class names must be a list.

    mmdet's instance configs inherit a ``seg`` prefix, which is checked only if the
    pipeline loads its maps.
    """
    dataset = (dataloader or {}).get('dataset', {})
    for part in dicts_in(dataset):
        metainfo = part.get('metainfo')
        classes = metainfo.get('classes') if isinstance(metainfo, Mapping) else None
        check_class_names(classes, f'{key}.dataset')
    root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix', {})
    check_annotation_file(dataset, f'{key}.dataset', root)
    # The single prefix of a classification data set has no name.
    named = prefixes if isinstance(prefixes, Mapping) else {None: prefixes}
    for name, prefix in named.items():
        folder = osp.join(root, prefix or '')
        unused = name == 'seg' and not any(
            'Panoptic' in str(step.get('type')) or step.get('with_seg')
            for step in dataset.get('pipeline', ())
        )
        if folder and '://' not in folder and not unused:
            keys = f'{key}.dataset.data_root, {key}.dataset.data_prefix'
            keys += f'.{name}' if name else ''
            ok = osp.isdir(folder) and os.listdir(folder)
            check(ok, keys, folder, 'a folder with data, or a link to one')


def check_class_names(classes: object, key: str) -> None:
    """Raise if class names are a text, unless it is a file of names, as mm allows."""
    right = not isinstance(classes, str) or osp.isfile(classes)
    check(right, f'{key}.metainfo.classes', classes, ONE_NAME)


def check_annotation_file(config: Mapping | None, key: str, root: str = '') -> None:
    """Raise if a local ``ann_file`` is missing or empty."""
    name = config.get('ann_file') if isinstance(config, Mapping) else None
    file = osp.join(root, name or '')
    if name and '://' not in file:
        keys = f'{key}.data_root, {key}.ann_file' if root else f'{key}.ann_file'
        ok = osp.isfile(file) and osp.getsize(file)
        check(ok, keys, file, 'a file with annotations')
