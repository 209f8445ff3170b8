"""The manifest of an export, and its only reader."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

MANIFEST = 'manifest.json'
VERSION = 7  # of the layout; the first layout had none
DIGITS = 8  # hex digits of the digest in a file name
AS_LOADED = 'loaded'  # order of the channels of images without three channels
# What the runtime reads; docs/reference/manifest.md describes all keys.
KEYS = 'task', 'input', 'caller', 'classes', 'palette', 'largest_flops', 'ranked_by'
KEYS += 'stitches', 'weights', 'anchors'


def read_manifest(folder: str | os.PathLike) -> dict:
    """Read the manifest of an export.

    Raises:
        ValueError: If it is unreadable, of another version, or lacks a key.
    """
    path = Path(folder, MANIFEST)
    try:
        manifest = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, RecursionError, ValueError) as error:
        hint = 'tools/export_stitch.py writes such folders'
        raise ValueError(f'{path} cannot be read: {error}; {hint}') from None
    found = manifest if isinstance(manifest, dict) else {}
    if (version := found.get('version')) != VERSION:
        expected = f'expected {VERSION}; export the stitches again'
        raise ValueError(f'{path}: version={version!r} is invalid: {expected}')
    if missing := [key for key in KEYS if key not in manifest]:
        raise ValueError(f'{path} is damaged: the keys {missing} are missing')
    return manifest


def manifest_digest(manifest: Mapping) -> str:
    """Return a short digest of a manifest, and so of the files that it names."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
