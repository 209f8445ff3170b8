"""Data folders that a config names, checked before anything is built."""

from __future__ import annotations

import os.path as osp
from collections.abc import Mapping
from pathlib import Path


def check_data_folders(dataloader: Mapping | None, key: str) -> None:
    """Refuse a dataloader whose data folders are missing or empty.

    Only data sets with ``data_root`` and ``data_prefix`` are looked at, and only
    folders on a local disk.

    Args:
        dataloader: A dataloader's config, or None.
        key: Its config key, such as ``'train_dataloader'``, for the message.

    Raises:
        ValueError: If a folder is missing or empty.
    """
    dataset = (dataloader or {}).get('dataset', {})
    root, prefixes = dataset.get('data_root'), dataset.get('data_prefix', {})
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
