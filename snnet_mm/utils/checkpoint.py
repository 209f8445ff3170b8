"""Checkpoints are data: they are read without running what is in them."""

import hashlib
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from mmengine.runner.checkpoint import CheckpointLoader, load_from_http, load_from_local
from safetensors.torch import load_file

from .base_checkpoint import joined_with_base

_PLAIN = ('?', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'U1')
_STATISTICS = ('current', 'max', 'mean', 'min')
# What torch says of objects that it would have to trust; damage sounds different.
_REFUSAL = re.compile(
    r'.*(?:Unsupported global|unsupported GLOBAL|unrecognized function|not trusted|'
    r'Can only (?:create|build|append|extend|set)).*'
)
FLAG = '--trust-checkpoint'
KEYS = (
    'config keys: load_from, init_cfg.checkpoint; of tools/test.py: the argument '
    'checkpoint'
)
SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'


class UntrustedCheckpointError(ValueError):
    """A checkpoint that holds more than weights, log history and plain data."""


def load_weights_only(path: str | os.PathLike) -> dict[str, Any]:
    """Read a checkpoint to the CPU; nothing in it can run.

    One that adds to a base checkpoint comes with the weights of both; see
    :func:`snnet_mm.utils.base_checkpoint.save_added`. Besides what torch takes for
    weights, ``HistoryBuffer`` and numpy's arrays and scalars of plain data are let in,
    as mmengine's checkpoints hold them. The tensors of a ``.safetensors`` file become
    the state dict.

    Raises:
        UntrustedCheckpointError: If the file holds anything else.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        what = 'is no file' if path.exists() else 'does not exist'
        raise ValueError(f'checkpoint {path} {what}')
    try:
        if path.suffix == '.safetensors':
            return dict(state_dict=load_file(path))
        if zipfile.is_zipfile(path):  # torch does not look at the check sums
            with zipfile.ZipFile(path) as archive:
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f'bad check sum of {damaged}')
        with torch.serialization.safe_globals(plain_globals()):
            loaded = torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:
        raise _explained(path, error) from error
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f'checkpoint {path} holds a {type(loaded).__name__}, a dict is wanted'
        )
    return joined_with_base(dict(loaded), path, load_weights_only)


def _explained(path: Path, error: Exception) -> ValueError:
    """The error to raise for one of reading, which differs by where a file is bad."""
    refusal = _REFUSAL.search(str(error))
    bare = path.read_bytes()[:1] == pickle.PROTO
    if isinstance(error, pickle.UnpicklingError) and (refusal or bare):
        reason = refusal[0] if refusal else 'it is a bare pickle'
        return UntrustedCheckpointError(
            f'checkpoint {path} holds objects that could run code: '
            + reason.strip().partition(' Please use')[0]
        )
    reason = f'{type(error).__name__} {error}'.splitlines()[0].partition('. ')[0]
    return ValueError(
        f'checkpoint {path} is truncated, damaged or no checkpoint at all '
        f'({path.stat().st_size} bytes): {reason}'
    )


def load_url(url: str) -> dict[str, Any]:
    """Fetch a checkpoint into torch's cache, unless it is there, and read it.

    One that :func:`load_weights_only` refuses is not kept.
    """
    path = _download(url)
    try:
        return load_weights_only(path)
    except ValueError as error:
        path.unlink()
        raise type(error)(f'{error} (downloaded from {url}, now deleted)') from error


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


def plain_globals() -> list:
    """Names under which pickles of numpy 1 and 2 and of mmengine know their parts."""
    multiarray = np._core.multiarray
    functions = [
        (getattr(multiarray, name), f'numpy.{package}.multiarray.{name}')
        for name in ('_reconstruct', 'scalar')
        for package in ('core', '_core')
    ]
    dtypes = [type(np.dtype(code)) for code in _PLAIN]
    # A history buffer names its statistics as getattr(HistoryBuffer, 'mean') does.
    statistic = (_history_statistic, 'builtins.getattr')
    # Those of an empty array come as bytes().
    return [HistoryBuffer, statistic, bytes, np.ndarray, np.dtype, *functions, *dtypes]


def _history_statistic(owner: object, name: str) -> Any:
    """A ``getattr`` that reaches the statistics of a history buffer, and no more."""
    if owner is not HistoryBuffer or name not in _STATISTICS:
        raise pickle.UnpicklingError(f'getattr of {name!r} is not trusted')
    return getattr(HistoryBuffer, name)


@contextmanager
def guard_checkpoints(trust: bool = False) -> Iterator[None]:
    """Let mmengine read checkpoints as data, where it would run what is in them.

    mmengine (0.10) unpickles what torch refuses, and on resuming it runs the config
    that a checkpoint holds. Inside this context files and addresses are read by
    :func:`load_weights_only`, through mmengine's own ``register_scheme``, and without
    that config. What loads otherwise torch itself confines to weights. Should mmengine
    load in another way one day, tests/test_utils/test_checkpoint.py fails. With
    ``trust`` everything stays as mmengine has it, and a warning says so.
    """
    if trust:
        print_log(
            f'{FLAG}: checkpoints are loaded as they are. Any code in them runs with '
            'your rights.',
            logger='current',
            level=logging.WARNING,
        )
        yield
        return
    switch = os.environ.get(SWITCH, '0')
    os.environ[SWITCH] = '1'
    _register(_guarded(load_weights_only), _guarded(load_url))
    try:
        yield
    finally:
        os.environ[SWITCH] = switch
        _register(load_from_local, load_from_http)


def _register(local: Callable, http: Callable) -> None:
    CheckpointLoader.register_scheme('', local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), http, force=True)


def _guarded(load: Callable[[str], dict[str, Any]]) -> Callable:
    """Return a loader of mmengine; all parts move tensors to their own device."""

    def load_from_guarded(filename: str, map_location: Any = None) -> dict[str, Any]:
        try:
            checkpoint = load(filename)
        except UntrustedCheckpointError as error:
            raise UntrustedCheckpointError(
                f'{error}; nothing of it was run. If you trust where it comes from, '
                f'pass {FLAG} ({KEYS})'
            ) from None
        except ValueError as error:
            raise ValueError(f'{error} ({KEYS})') from None
        if isinstance(checkpoint.get('meta'), dict):
            for key in ('cfg', 'config'):
                checkpoint['meta'].pop(key, None)
        return checkpoint

    return load_from_guarded
