"""The manifest of an export: its layout, and its only reader, which validates it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from .checks import is_number, is_whole

MANIFEST = 'manifest.json'
VERSION = 6  # of the layout; the first layout had none
DIGITS = 8  # hex digits of the digest in a file name
TASKS = 'segmentation', 'depth', 'detection', 'classification'
AS_LOADED = 'loaded'  # order of channels, of images that have not three
MOST_PIXELS = 2**14  # maximum height and width of an image
MADE_BY = 'tools/export_stitch.py writes such folders'


class Value(NamedTuple):
    """A leaf value: its predicate, and a description of the expected values."""

    is_right: Callable[[Any], bool]
    expected: str


class Maybe(NamedTuple):
    """A value that may be null."""

    layout: Any


def _one_of(*values: str | int) -> Value:
    return Value(lambda v: v in values, ' or '.join(map(repr, values)))


def _matches(pattern: str, expected: str) -> Value:
    regex = re.compile(pattern, re.ASCII)
    return Value(lambda v: isinstance(v, str) and bool(regex.fullmatch(v)), expected)


TEXT = _matches(r'(?s:.+)', 'text')
FLAG = Value(lambda v: isinstance(v, bool), 'true or false')
NUMBER = Value(is_number, 'a finite number')
POSITIVE = Value(lambda v: is_number(v) and v > 0, 'a positive number')
COUNT = Value(lambda v: is_whole(v, 0), 'a whole number from 0')
FROM_1 = Value(lambda v: is_whole(v, 1), 'a whole number from 1')
SIDE = Value(
    lambda v: is_whole(v, 1) and v <= MOST_PIXELS, f'1 to {MOST_PIXELS} pixels'
)
BATCH = _one_of('batch', 1)
DIMENSION = Value(lambda v: v == 'batch' or is_whole(v, 1), '"batch" or a length')
# No separator or leading dot, so that a path cannot leave its folder.
NAME = _matches(r'\w[\w.@-]*', 'the name of a file in the folder of the manifest')
DIGEST = _matches('[0-9a-f]{64}', 'a SHA-256 digest')
RGB = (NUMBER, NUMBER, NUMBER)
SIZE = (SIDE, SIDE)

# A layout is a Value, a Maybe, a dict of layouts by key (``str`` matches any key), a
# list with the layout of all items, or a tuple with one layout per item.
FILE = dict(name=NAME, bytes=COUNT, sha256=DIGEST)
VERIFIED = dict(
    on=_one_of('val', 'test'),
    images=FROM_1,
    metric=TEXT,
    value=Maybe(NUMBER),
    pytorch=Maybe(NUMBER),
    lost=Maybe(NUMBER),
    interval=Maybe((NUMBER, NUMBER)),
    ms=POSITIVE,
    pytorch_ms=POSITIVE,
    metrics={str: NUMBER},
)
LOADED = dict(dtype=_one_of('float32'), range=(_one_of(0), _one_of(255)))
GRAPH = FILE | dict(weights=Maybe(FILE), max_difference=NUMBER)
STITCH = dict(
    id=COUNT,
    kind=TEXT,
    route=TEXT,
    flops=POSITIVE,
    params=COUNT,
    segments=[(TEXT, COUNT, FROM_1)],
    branches=Maybe([(COUNT, COUNT, FROM_1)]),
    metrics={str: NUMBER},
    files=[
        GRAPH
        | dict(format=TEXT, precision=TEXT, shares_weights=FLAG)
        | dict(options={str: TEXT}, verified=Maybe(VERIFIED))
    ],
    left_out=[dict(format=TEXT, precision=TEXT, verified=VERIFIED)],
)
LAYOUT = dict(
    version=_one_of(VERSION),
    task=_one_of(*TASKS),
    input=LOADED
    | dict(name=TEXT, shape=(BATCH, FROM_1, *SIZE))
    | dict(channels=_one_of('RGB', 'BGR', AS_LOADED))
    | dict(mean=Maybe([NUMBER]), std=Maybe([POSITIVE])),
    outputs=[dict(name=TEXT, dtype=_one_of('float32'), shape=[DIMENSION])],
    caller=dict(before=[dict(step=TEXT)], after=[dict(step=TEXT)]),
    classes=[TEXT],
    palette=[RGB],
    ranked_by=Maybe(dict(metric=TEXT, higher_is_better=FLAG)),
    compared_on=TEXT,
    space=TEXT,
    largest_flops=POSITIVE,
    anchors=[dict(name=TEXT, depth=FROM_1)],
    stitches=[STITCH],
    weights=Maybe(FILE),
    machine={str: Value(lambda v: True, 'anything')},
)


def read_manifest(folder: str | os.PathLike) -> dict:
    """Read and validate the manifest of an export.

    Raises:
        ValueError: If it is unreadable, has another version or contains a wrong value.
    """
    path = Path(folder, MANIFEST)
    try:
        manifest = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, RecursionError, ValueError) as error:
        raise ValueError(f'{path} cannot be read: {error}; {MADE_BY}') from None
    check_manifest(manifest, path)
    return manifest


def check_manifest(manifest: Any, path: Path) -> None:
    """Raise a ValueError with the file, key and value of the first error."""

    def require(right: object, key: str, value: object, expected: str) -> None:
        if not right:
            found = f'{key}={short(value)}' if key else f'the content {short(value)}'
            raise ValueError(f'{path}: {found} is invalid: expected {expected}')

    require(isinstance(manifest, dict), '', manifest, f'an object; {MADE_BY}')
    version, expected = manifest.get('version'), f'{VERSION}; export the stitches again'
    require(version == VERSION, 'version', version, expected)
    _check(manifest, LAYOUT, '', require)


def _check(value: Any, layout: Any, place: str, require: Callable) -> None:
    """Validate a value against its layout, recursively."""
    if isinstance(layout, Maybe):
        if value is not None:
            _check(value, layout.layout, place, require)
    elif isinstance(layout, Value):
        require(layout.is_right(value), place, value, layout.expected)
    elif isinstance(layout, dict):
        require(isinstance(value, dict), place, value, 'an object')
        keys = value if str in layout else layout
        for key in keys:
            inner, below = layout.get(key, layout.get(str)), f'{place}.{key}'.strip('.')
            require(key in value, below, None, 'a value; the key is missing')
            _check(value[key], inner, below, require)
    else:
        number = len(layout) if isinstance(layout, tuple) else None
        right = isinstance(value, list) and number in (None, len(value))
        words = 'a list' if number is None else f'a list of {number}'
        require(right, place, value, words)
        for i, part in enumerate(value):
            _check(part, layout[i if number else 0], f'{place}[{i}]', require)
