"""Reading checkpoints without running what is in them."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

_STATISTICS = ('current', 'max', 'mean', 'min')


def load_weights_only(path: str | os.PathLike) -> dict[str, Any]:
    """Read a checkpoint on the CPU; only tensors, plain data and mm's log history.

    Checkpoints of mmengine carry a message hub with ``HistoryBuffer`` objects and
    numpy arrays. These are let in beside what ``torch.load(weights_only=True)`` takes,
    nothing else is, and there is no falling back.

    Raises:
        ValueError: If there is no such file, it is no whole checkpoint, it holds other
            objects, or it is not a dict.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        what = 'is a folder' if path.is_dir() else 'does not exist'
        raise ValueError(f'checkpoint {path} {what}; allowed is a file')
    try:
        with torch.serialization.safe_globals(_allowed_globals()):
            loaded = torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:
        # Damaged files raise whatever their bytes lead to, up to IndexError.
        raise ValueError(_explain(path, error)) from error
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f'checkpoint {path} holds a {type(loaded).__name__}; allowed is a dict'
        )
    return dict(loaded)


def load_url(url: str) -> dict[str, Any]:
    """Fetch a checkpoint into torch's cache, unless it is there, and read it.

    Args:
        url: An http or https address.

    Raises:
        ValueError: If it cannot be fetched, or for what :func:`load_weights_only`
            refuses; then it is not kept.
    """
    path = _download(url)
    try:
        return load_weights_only(path)
    except ValueError as error:
        path.unlink()
        raise ValueError(f'{error} (downloaded from {url}, now deleted)') from error


def _download(url: str) -> Path:
    # Files of different networks share names such as pytorch_model.bin.
    name = PurePosixPath(urlparse(url).path).name or 'checkpoint'
    tag = hashlib.sha256(url.encode()).hexdigest()[:12]
    path = Path(torch.hub.get_dir()) / 'checkpoints' / f'{tag}-{name}'
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), progress=False)
        except (OSError, HTTPException) as error:
            raise ValueError(f'checkpoint {url} cannot be fetched: {error}') from error
    return path


def _allowed_globals() -> list:
    """What may stand in a checkpoint beside torch's own objects.

    numpy 1 and 2 write different module names. HistoryBuffer saves its statistics as
    ``getattr(HistoryBuffer, 'mean')``: that name is given to a function which knows
    these only, since a real getattr would reach anything.
    """
    numpy_functions = [
        (getattr(np._core.multiarray, name), f'numpy.{core}.multiarray.{name}')
        for name in ('_reconstruct', 'scalar')
        for core in ('core', '_core')
    ]
    dtypes = [type(np.dtype(t)) for t in ('f4', 'f8', 'i4', 'i8', 'u4')]
    return [
        HistoryBuffer,
        (_history_statistic, 'builtins.getattr'),
        np.ndarray,
        np.dtype,
        *numpy_functions,
        *dtypes,
    ]


def _history_statistic(owner: type, name: str) -> Any:
    if owner is not HistoryBuffer or name not in _STATISTICS:
        raise pickle.UnpicklingError(f'Unsupported global: GLOBAL getattr({name!r})')
    return getattr(HistoryBuffer, name)


def _explain(path: Path, error: Exception) -> str:
    refused = re.search(r'GLOBAL (\S+)', str(error))
    if isinstance(error, pickle.UnpicklingError) and refused:
        return (
            f'checkpoint {path} holds {refused[1]}, which could run code and was not '
            'loaded; allowed are tensors, plain data and the log history of mmengine. '
            'If you trust its source, save the state dict alone to a new file'
        )
    # torch's words about unpickling recommend to run what is in the file.
    reason = '' if isinstance(error, pickle.UnpicklingError) else str(error)
    return (
        f'checkpoint {path} is truncated, damaged or no PyTorch file '
        f'({path.stat().st_size} bytes) {reason}'
    ).strip()
