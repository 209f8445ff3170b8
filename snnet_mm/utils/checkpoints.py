"""Checkpoints: loaded without running code in them, unwrapped and validated."""

import argparse
import hashlib
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from contextvars import ContextVar
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn
from urllib.parse import urlparse

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from safetensors.torch import load_file
from torch import Tensor, nn

from .base_checkpoint import KEY as BASE
from .base_checkpoint import weights_digest, with_prefixes
from .distributed import first_process_first

_PLAIN = ('?', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'U1')
_STATISTICS = ('current', 'max', 'mean', 'min')
# Whether checkpoints are unpickled, as guard_checkpoints(trust=True) does.
trusting = ContextVar('trusting', default=False)
KEYS = 'config key: load_from; of tools/test.py: the argument checkpoint'
# Name patterns of weights that change the outputs of others, each with the setting that
# adds their parameters to a model. Other subpackages register theirs.
ADDED = {r'(^|\.)blocks\..*\.lora_': 'model.backbone.anchors.lora'}
# Ends of the names of values that modules adapt to their own shape when they load them.
# Other subpackages register theirs.
ADAPTED = {'_extra_state'}
# Keys under which files store the state dict; BEiT's files nest them.
STATE_DICTS = ('state_dict', 'model', 'module')


class UntrustedCheckpointError(ValueError):
    """Raised if a checkpoint contains more than weights, log history and plain data."""


def load_weights_only(path: str | os.PathLike) -> dict[str, Any]:
    """Load a checkpoint to the CPU without running any code in it.

    A checkpoint that adds to a base checkpoint is returned with the weights of both;
    see :class:`snnet_mm.utils.base_checkpoint.BaseCheckpoint`.
    Besides the types that torch allows, ``HistoryBuffer`` and numpy arrays and scalars
    of plain data are allowed, because mmengine's checkpoints contain them, and
    ``argparse.Namespace``, in which published files keep their options. Inside
    ``guard_checkpoints(trust=True)``, everything is. The tensors of a ``.safetensors``
    file become the state dict.

    Raises:
        UntrustedCheckpointError: If the file contains anything else.
        ValueError: If it is a URL, there is no such file, or it is damaged.
    """
    if '://' in str(path):
        raise ValueError(
            f'checkpoint {path} is a URL: download it first, and give the file '
            '(argument: checkpoint)'
        )
    path = Path(path).expanduser()
    if not path.is_file():
        what = 'is not a file' if path.exists() else 'does not exist'
        raise ValueError(f'checkpoint {path} {what}')
    try:
        if path.suffix == '.safetensors':
            return dict(state_dict=load_file(path))
        if zipfile.is_zipfile(path) and not is_whole_archive(path):
            raise zipfile.BadZipFile('a bad check sum')
        allow_plain_types()
        loaded = torch.load(path, map_location='cpu', weights_only=not trusting.get())
    except Exception as error:
        raise _explained(path, error) from error
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f'checkpoint {path} holds a {type(loaded).__name__}, expected a dict'
        )
    return _joined_with_base(dict(loaded), path)


def _joined_with_base(loaded: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a checkpoint joined with the weights of its base, if it refers to one.

    Raises:
        ValueError: If the base is missing, or its weights have changed.
    """
    meta = loaded.get('meta')
    record = meta.get(BASE) if isinstance(meta, Mapping) else None
    if record is None:
        return loaded
    base = path.resolve().parent / record['path']
    if not base.is_file():
        raise ValueError(
            f'checkpoint {path} adds to {base}, which does not exist: put the network '
            'there, or write one file with tools/make_elastic.py --whole'
        )
    weights = weights_of(load_weights_only(base))
    if weights_digest(weights) != record['sha256']:
        raise ValueError(
            f'checkpoint {path} adds to {base}, whose weights have changed since: '
            'restore that file, or run tools/make_elastic.py again'
        )
    named = with_prefixes(weights, record['renames'])
    kept = {k: v for k, v in meta.items() if k != BASE}
    return dict(loaded, meta=kept, state_dict={**named, **loaded['state_dict']})


def weights_of(loaded: Mapping) -> dict[str, Any]:
    """Return the state dict of a loaded file, without the prefix of wrappers."""
    for key in STATE_DICTS:
        inner = loaded.get(key)
        loaded = inner if isinstance(inner, Mapping) else loaded
    return {str(k).removeprefix('module.'): v for k, v in loaded.items()}


def is_whole_archive(path: str | os.PathLike) -> bool:
    """Return whether a file is a zip archive, as torch writes, with right checksums.

    torch itself does not verify them.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # of many kinds: its directory may be damaged
        return False


def _explained(path: Path, error: Exception) -> ValueError:
    """Convert a loading error, whose type varies with the damage, to a ValueError."""
    first = error.__context__ or error  # torch wraps those of its unpickler
    reason = f'{type(first).__name__} {first}'.splitlines()[0].partition('. ')[0]
    if isinstance(error, pickle.UnpicklingError):
        return UntrustedCheckpointError(
            f'checkpoint {path} holds objects that could run code, or is damaged: '
            f'{reason}'
        )
    return ValueError(
        f'checkpoint {path} is truncated, damaged or no checkpoint at all '
        f'({path.stat().st_size} bytes): {reason}'
    )


def load_url(url: str) -> dict[str, Any]:
    """Download a checkpoint to torch's cache, unless cached, and load it.

    If :func:`load_weights_only` raises, the file is deleted.
    """
    # Files of different networks share names such as pytorch_model.bin.
    name = PurePosixPath(urlparse(url).path).name or 'checkpoint'
    tag = hashlib.sha256(url.encode()).hexdigest()[:12]
    path = Path(torch.hub.get_dir()) / 'checkpoints' / f'{tag}-{name}'
    with first_process_first():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                torch.hub.download_url_to_file(url, str(path), progress=False)
            except (OSError, HTTPException) as error:
                message = f'checkpoint {url} cannot be fetched: {error}'
                raise ValueError(message) from error
    try:
        return load_weights_only(path)
    except ValueError as error:
        path.unlink()
        raise type(error)(f'{error} (downloaded from {url}, now deleted)') from error


def _plain_globals() -> list:
    """Return the globals that pickles of numpy 1 and 2, mmengine and DeiT refer to."""
    functions = [
        (getattr(np._core.multiarray, name), f'numpy.{package}.multiarray.{name}')
        for name in ('_reconstruct', 'scalar')
        for package in ('core', '_core')
    ]
    dtypes = [type(np.dtype(code)) for code in _PLAIN]
    # Pickled history buffers refer to statistics by getattr(HistoryBuffer, 'mean').
    statistic = (_history_statistic, 'builtins.getattr')
    # The data of an empty array is pickled as bytes().
    plain = [argparse.Namespace, HistoryBuffer, bytes, np.ndarray, np.dtype]
    return [*plain, statistic, *functions, *dtypes]


def _history_statistic(owner: object, name: str) -> Any:
    """Replace ``getattr``, but return only statistics of a history buffer."""
    if owner is not HistoryBuffer or name not in _STATISTICS:
        raise pickle.UnpicklingError(f'getattr of {name!r} is not trusted')
    return getattr(HistoryBuffer, name)


def allow_plain_types() -> None:
    """Let torch read what mmengine writes, in all of this process.

    From torch 2.6 on, mmengine 0.10.7 cannot resume its own checkpoints otherwise. Done
    anew for every load, as others that allow the same for a while remove it then.
    """
    torch.serialization.add_safe_globals(_plain_globals())


allow_plain_types()


def load_fitting(model: nn.Module, checkpoint: Mapping, name: str) -> None:
    """Load a checkpoint, which must contain all parameters of the model.

    Weights that the model lacks are skipped. Those that :data:`ADDED` matches raise if
    the model has none of their kind.
    """
    check_weights_fit(model, checkpoint, name, strict=True)
    model.load_state_dict(weights_of(checkpoint), strict=False)


def check_weights_fit(
    model: nn.Module,
    checkpoint: Mapping,
    name: str,
    strict: bool,
    resumed: bool = False,
) -> None:
    """Raise unless a checkpoint, or state dict, contains the weights of a model.

    mmengine itself loads matching weights and only logs the rest.

    Args:
        model: The model, without wrappers.
        checkpoint: The loaded checkpoint or state dict.
        name: Name of the checkpoint in messages.
        strict: Whether all parameters must be present in their shapes, and no weights
            in :data:`ADDED` that the model lacks; otherwise one matching key suffices.
        resumed: Whether the model must have all stitches of the checkpoint.
    """
    weights = weights_of(checkpoint)

    def fail(what: str, keys: str = KEYS) -> NoReturn:
        raise ValueError(f'checkpoint {name} {what} ({keys})')

    for path, module in model.named_modules():
        if not hasattr(module, 'check_space_of'):  # not a stitched backbone
            continue
        try:
            says = module.check_space_of(weights, f'{path}.' if path else '', resumed)
        except ValueError as error:
            fail(f'does not fit: {error}')
        if not says:
            print_log(f'checkpoint {name} has no record of its space', 'current')
    shapes, wanted = _shapes(weights), _shapes(model.state_dict())
    known = [key for key in shapes if key in wanted]
    if not known:
        fail(f'is of another model: it holds {list(weights)[:3]}, ...')
    if key := non_finite({key: weights[key] for key in known}):
        fail(f'holds {key} that is not finite: the training diverged')
    if not strict:
        return
    for key in known:
        if shapes[key] != wanted[key]:
            has = f'{key} has shape {shapes[key]}, the model has {wanted[key]}'
            fail(f'is of another geometry: {has}')
    for pattern, setting in ADDED.items():
        added = [k for k in shapes if re.search(pattern, k)]
        if added and not any(re.search(pattern, k) for k in wanted):
            what = f'holds {added[0]} and others that the model lacks'
            fail(what, f'config key: {setting}; {KEYS}')
    # Without the buffer, stitching layers would be fitted again.
    needed = [k for k in wanted if k.endswith('stitching_initialized')]
    needed += [k for k, _ in model.named_parameters()]
    if missing := [k for k in needed if k not in shapes]:
        fail(f'lacks {len(missing)} parameters of the model, such as {missing[:3]}')


def non_finite(weights: Mapping[str, Tensor]) -> str | None:
    """Return the name of a weight with an infinite value or a NaN, if there is one."""
    for key, value in weights.items():
        floats = isinstance(value, Tensor) and value.is_floating_point()
        if floats and not value.isfinite().all():
            return key
    return None


def _shapes(weights: Mapping) -> dict[str, tuple[int, ...]]:
    return {
        key: tuple(value.shape)
        for key, value in weights.items()
        if isinstance(value, Tensor) and not key.endswith((*ADAPTED,))
    }
