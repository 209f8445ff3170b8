"""Validation of bundle files against the manifest, and opening of graphs."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from .checks import check
from .device import PROVIDERS
from .manifest import DIGITS, MANIFEST

Run = Callable[[np.ndarray], list[np.ndarray]]


def file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 digest of a file, cached until the file changes."""
    found = os.stat(path)
    return _digest(os.fspath(path), found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, *_: int) -> str:
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def describe_file(path: Path) -> dict:
    """Return the manifest entry of a file: its name, size and digest."""
    about = dict(name=path.name, bytes=path.stat().st_size)
    return about | dict(sha256=file_digest(path))


def name_by_content(name: str, digest: str) -> str:
    """Return a file name extended by the first digits of the file's digest.

    Names then differ between exports, so a bundle stays intact while the next one is
    written into its folder.
    """
    stem, suffix = os.path.splitext(name)
    return f'{stem}-{digest[:DIGITS]}{suffix}'


def files_of(manifest: Mapping) -> Iterator[Mapping]:
    """Yield every file of a manifest; shared weights are yielded once per graph."""
    for stitch in manifest['stitches']:
        for file in stitch['files']:
            yield from filter(None, (file, file['weights']))


def check_whole(folder: str | os.PathLike, file: Mapping) -> Path:
    """Return the path of a file after checking its digest and its weights' digest.

    Raises:
        ValueError: If a file is outside of the folder, by its name or as a link, or is
            missing or differs from the manifest.
    """
    # Files of the hub's cache are links into one folder, the manifest included.
    places = Path(folder).resolve(), Path(folder, MANIFEST).resolve().parent
    for about in filter(None, (file.get('weights'), file)):
        path = Path(folder, about['name'])
        if path.resolve().parent not in places:
            raise ValueError(f'{path} is outside of the folder, or a link out of it')
        found = file_digest(path) if path.is_file() else None
        if found != about['sha256']:
            expected = f'{about["sha256"]}, as in {MANIFEST}; the file is damaged, or '
            expected += 'the stitches were exported again: open the folder anew'
            raise ValueError(f'{path}: sha256={found} is invalid: expected {expected}')
    return path


def open_onnx(path: Path, threads: int, provider: str = 'cpu') -> Run:
    """Open an ONNX file in onnxruntime; one of a detector runs image by image.

    Raises:
        ValueError: If the file cannot be opened, or only on the CPU, where onnxruntime
            runs graphs without an error if a library of the provider is missing.
    """
    import onnxruntime

    wanted = PROVIDERS[provider]

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    try:  # onnxruntime raises for weights outside the folder
        session = onnxruntime.InferenceSession(path, settings, providers=[wanted])
    except Exception as error:  # its exception classes have no public base
        raise ValueError(f'{path} cannot be opened: {error}') from error
    used = session.get_providers()
    expected = f'libraries that {wanted} can load: {path.name} runs on {used[0]}'
    check(used[0] == wanted, '--provider', provider, expected)
    (images,) = session.get_inputs()

    def run(array: np.ndarray) -> list[np.ndarray]:
        return session.run(None, {images.name: array})

    def run_each(array: np.ndarray) -> list[np.ndarray]:
        found = [run(image[None]) for image in array]
        return [np.concatenate(outputs) for outputs in zip(*found, strict=True)]

    return run_each if images.shape[0] == 1 else run
