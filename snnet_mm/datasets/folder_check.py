"""Data folders that a config names, checked before anything is built."""

from __future__ import annotations

import os.path as osp
from collections.abc import Mapping
from pathlib import Path


def check_data_folders(dataloader: Mapping | None, key: str) -> None:
    """Refuse a dataloader whose data folders or annotation file are missing or empty.

    Only data sets with ``data_root``, ``data_prefix`` and ``ann_file`` are looked at,
    and only what is on a local disk.

    Args:
        dataloader: A dataloader's config, or None.
        key: Its config key, such as ``'train_dataloader'``, for the message.

    Raises:
        ValueError: If a folder or the file is missing or empty.
    """
    dataset = (dataloader or {}).get('dataset', {})
    root, prefixes = dataset.get('data_root'), dataset.get('data_prefix', {})
    check_annotation_file(dataset, f'{key}.dataset', root)
    # One folder for everything, as data sets of classification have it, has no name.
    named = prefixes if isinstance(prefixes, Mapping) else {None: prefixes}
    for name, prefix in named.items():
        folder = osp.join(root or '', prefix or '')
        if not folder or '://' in folder:
            continue
        path = Path(folder)
        if not path.is_dir() or not any(path.iterdir()):
            state = 'is empty' if path.is_dir() else 'does not exist'
            raise ValueError(
                f'the data folder {folder!r} {state}; put the data there, or a link to '
                f'it (config keys: {key}.dataset.data_root, '
                f'{key}.dataset.data_prefix{f".{name}" if name else ""})'
            )


def check_annotation_file(
    config: Mapping | None, key: str, root: str | None = None
) -> None:
    """Refuse an ``ann_file`` that is missing or empty, if it is on a local disk.

    Args:
        config: Config of a data set or an evaluator, or None.
        key: Its config key, for the message.
        root: Folder that the name is relative to.

    Raises:
        ValueError: If it is.
    """
    name = config.get('ann_file') if isinstance(config, Mapping) else None
    file = osp.join(root or '', name or '')
    if not name or '://' in file:
        return
    path = Path(file)
    if not path.is_file() or not path.stat().st_size:
        state = 'is empty' if path.is_file() else 'does not exist'
        raise ValueError(
            f'the annotation file {file!r} {state}; put it there, or a link to its '
            f'folder (config keys: {key}.ann_file'
            + (f', {key}.data_root)' if root else ')')
        )
