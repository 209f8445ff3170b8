"""Data folders that a config names, checked before anything is built."""

import os
import os.path as osp
from collections.abc import Mapping

from snnet_mm.utils import check


def check_data_folders(dataloader: Mapping | None, key: str) -> None:
    """Refuse a dataloader whose local folders or annotation file are missing or empty.

    ``seg`` maps, which mmdet's instance configs inherit, count where they are loaded.
    """
    dataset = (dataloader or {}).get('dataset', {})
    root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix', {})
    check_annotation_file(dataset, f'{key}.dataset', root)
    # One folder for everything, as data sets of classification have it, has no name.
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
            check(ok, keys, folder, 'a folder with data in it, or a link to one')


def check_annotation_file(config: Mapping | None, key: str, root: str = '') -> None:
    """Refuse an ``ann_file``, in a folder, that is missing or empty on a local disk."""
    name = config.get('ann_file') if isinstance(config, Mapping) else None
    file = osp.join(root, name or '')
    if name and '://' not in file:
        keys = f'{key}.data_root, {key}.ann_file' if root else f'{key}.ann_file'
        ok = osp.isfile(file) and osp.getsize(file)
        check(ok, keys, file, 'a file with annotations in it')
