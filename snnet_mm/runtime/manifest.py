"""The manifest of an export: its layout, and the one reader that validates it."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from .checks import is_number, is_whole

MANIFEST = 'manifest.json'
VERSION = 4  # of the layout; the first had no number
DIGITS = 8  # of the digest in the name of a file
MOST_PIXELS = 2**14  # of a side of an image
MADE_BY = 'tools/export_stitch.py writes such folders'


class Value(NamedTuple):
    """A value without parts: a test of it, and the allowed ones in words."""

    is_right: Callable[[Any], bool]
    allowed: str


class Maybe(NamedTuple):
    """A value that may be null."""

    layout: Any


def _one_of(*values: str | int) -> Value:
    return Value(lambda v: v in values, ' or '.join(map(repr, values)))


def _matches(pattern: str, allowed: str) -> Value:
    regex = re.compile(pattern, re.ASCII)
    return Value(lambda v: isinstance(v, str) and bool(regex.fullmatch(v)), allowed)


TEXT = _matches(r'(?s:.+)', 'text')
FLAG = Value(lambda v: isinstance(v, bool), 'true or false')
NUMBER = Value(is_number, 'a finite number')
POSITIVE = Value(lambda v: is_number(v) and v > 0, 'a positive number')
SHARE = Value(lambda v: is_number(v) and 0 <= v <= 1, 'a number from 0 to 1')
WHOLE = Value(lambda v: is_whole(v, -1), 'a whole number')
COUNT = Value(lambda v: is_whole(v, 0), 'a whole number from 0')
FROM_1 = Value(lambda v: is_whole(v, 1), 'a whole number from 1')
SIDE = Value(
    lambda v: is_whole(v, 1) and v <= MOST_PIXELS, f'1 to {MOST_PIXELS} pixels'
)
BATCH = _one_of('batch', 1)
DIMENSION = Value(lambda v: v == 'batch' or is_whole(v, 1), '"batch" or a length')
# Nothing that a path could leave its folder with.
NAME = _matches(r'\w[\w.@-]*', 'the name of a file in the folder of the manifest')
DIGEST = _matches('[0-9a-f]{64}', 'a SHA-256 digest')
RGB = (NUMBER, NUMBER, NUMBER)
SIZE = (SIDE, SIDE)

# A layout is a value, an object by its keys (of any names: by ``str``), a list of one
# layout, or a tuple of as many.
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
CHANNELS = _one_of('RGB', 'BGR')
GRAPH = FILE | dict(weights=Maybe(FILE), max_difference=NUMBER)
STITCH = dict(
    id=COUNT,
    kind=TEXT,
    route=TEXT,
    flops=POSITIVE,
    params=COUNT,
    segments=[(TEXT, COUNT, FROM_1)],
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
    task=_one_of('segmentation', 'depth', 'detection', 'classification'),
    input=LOADED
    | dict(name=TEXT, shape=(BATCH, _one_of(3), *SIZE), channels=CHANNELS)
    | dict(mean=Maybe(RGB), std=Maybe((POSITIVE,) * 3)),
    outputs=[dict(name=TEXT, dtype=_one_of('float32'), shape=[DIMENSION])],
    graph=dict(
        normalises=FLAG, resizes_images=FLAG, resizes_predictions_to=Maybe(SIZE)
    ),
    caller=dict(before=[dict(step=TEXT)], after=[dict(step=TEXT)]),
    classes=[TEXT],
    palette=[RGB],
    ranked_by=Maybe(dict(metric=TEXT, higher_is_better=FLAG)),
    compared_on=TEXT,
    space=TEXT,
    anchors=[dict(name=TEXT, depth=FROM_1)],
    stitches=[STITCH],
    weights=Maybe(FILE),
    machine={str: Value(lambda v: True, 'anything')},
)
# Steps of the caller by name; others before the graph stay those of the caller.
BEFORE = dict(
    resize=dict(size=SIZE, keep_ratio=FLAG, interpolation=TEXT),
    windows=dict(size=SIZE, stride=SIZE),
    flip_average=dict(of=_one_of('image', 'windows')),
    channels=dict(order=CHANNELS),
    pad=dict(size=Maybe(SIZE), size_divisor=Maybe(SIDE), value=RGB),
    batch=LOADED | dict(layout=_one_of('NCHW')),
)
AFTER = dict(
    resize=dict(align_corners=FLAG, size=_one_of('image')),
    argmax=dict(axis=_one_of(1)),
    softmax=dict(axis=_one_of(1)),
    sigmoid={},
    threshold=dict(above=NUMBER),
    top=dict(number=FROM_1),
    heads={},
    objects=dict(levels=[FROM_1], per_level=WHOLE, above=NUMBER, number=COUNT)
    | dict(clip=FLAG, fills=FLAG, one_class=FLAG, all_classes=FLAG)
    | dict(larger_than=NUMBER, iou=Maybe(SHARE)),
    queries=dict(things=COUNT, number=Maybe(FROM_1))
    | dict(panoptic=Maybe(dict(above=NUMBER, iou=NUMBER, inside=FLAG))),
    instances=dict(above=Maybe(NUMBER)),
)
DECISIONS = dict(  # steps after the graph that make a prediction, by task
    segmentation=(('resize', 'argmax'), ('resize', 'sigmoid', 'threshold')),
    depth=(('resize',),),
    classification=(
        ('softmax', 'argmax'),
        ('sigmoid', 'threshold'),
        ('sigmoid', 'top'),
    ),
    detection=(
        ('heads',),
        ('objects',),
        ('queries',),
        ('instances',),
    ),
)


def read_manifest(folder: str | os.PathLike) -> dict:
    """Read and validate the manifest of an export.

    Raises:
        ValueError: If it cannot be read, is of another version or holds a wrong value.
    """
    path = Path(folder, MANIFEST)
    try:
        manifest = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, RecursionError, ValueError) as error:
        raise ValueError(f'{path} cannot be read: {error}; {MADE_BY}') from None
    check_manifest(manifest, path)
    return manifest


def check_manifest(manifest: Any, path: Path) -> None:
    """Raise a ValueError with the file, key and value of the first fault."""

    def require(right: object, key: str, value: object, allowed: str) -> None:
        if not right:
            found = f'{key}={short(value)}' if key else f'the content {short(value)}'
            raise ValueError(f'{path}: {found}; allowed: {allowed}')

    require(isinstance(manifest, dict), '', manifest, f'an object; {MADE_BY}')
    version, allowed = manifest.get('version'), f'{VERSION}; export the stitches again'
    require(version == VERSION, 'version', version, allowed)
    _check(manifest, LAYOUT, '', require)
    for key, known in (('before', BEFORE), ('after', AFTER)):
        steps = manifest['caller'][key]
        names = [step['step'] for step in steps]
        for i, (name, step) in enumerate(zip(names, steps, strict=True)):
            place = f'caller.{key}[{i}]'
            once = name not in known or names.count(name) == 1
            require(once, f'{place}.step', name, 'each step once')
            _check(step, known.get(name, {}), place, require)
    _check_steps(manifest, require)
    _check_stitches(manifest, require)


def _check(value: Any, layout: Any, place: str, require: Callable) -> None:
    """Compare a value with its layout, parts included."""
    if isinstance(layout, Maybe):
        if value is not None:
            _check(value, layout.layout, place, require)
    elif isinstance(layout, Value):
        require(layout.is_right(value), place, value, layout.allowed)
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


def _check_steps(manifest: Mapping, require: Callable) -> None:
    """Check that the steps of the caller fit the graph, the task and each other."""
    task, about, caller = manifest['task'], manifest['input'], manifest['caller']
    before = {step['step']: step for step in caller['before']}
    order = before.get('channels', {}).get('order')
    wanted = f'{about["channels"]!r}, as input.channels'
    require(order == about['channels'], 'caller.before.channels', order, wanted)
    size = about['shape'][2:]
    windows = before.get('windows', dict(size=size, stride=size))
    key, wanted = 'caller.before.windows.size', f'{size}, as input.shape'
    require(windows['size'] == size, key, windows['size'], wanted)
    key, stride = 'caller.before.windows.stride', windows['stride']
    covers = all(step <= side for step, side in zip(stride, size, strict=True))
    require(covers, key, stride, f'up to {size}, the size of a window')
    names = tuple(step['step'] for step in caller['after'])
    wanted = ' or '.join(map(str, DECISIONS[task])) + f', of task={task!r}'
    require(names in DECISIONS[task], 'caller.after', names, wanted)


def _check_stitches(manifest: Mapping, require: Callable) -> None:
    """Check that stitches are told apart, and each has its own route and files."""
    depths = {anchor['name']: anchor['depth'] for anchor in manifest['anchors']}
    size, seen = manifest['input']['shape'][2:], set()
    require(manifest['stitches'], 'stitches', [], 'one stitch or more')
    for n, stitch in enumerate(manifest['stitches']):
        place, i = f'stitches[{n}]', stitch['id']
        require(i not in seen, f'{place}.id', i, 'each id once')
        seen.add(i)
        for name, begin, end in stitch['segments']:
            right = begin < end <= depths.get(name, 0)
            key, found = f'{place}.segments', [name, begin, end]
            require(right, key, found, f'blocks of anchors of depths {depths}')
        require(stitch['files'], f'{place}.files', [], 'one file or more')
        names = [file['name'] for file in stitch['files']]
        for k, (name, file) in enumerate(zip(names, stitch['files'], strict=True)):
            below = f'{place}.files[{k}]'
            graph = 'stitch_{}_{}x{}_{}'.format(i, *size, file['precision'])
            stem = re.sub(f'-[0-9a-f]{{{DIGITS}}}$', '', Path(name).stem)
            right = stem in (graph, f'stitch_{i}')
            allowed = f'stitch_{i} or {graph}, digits and a suffix; each once'
            right = right and names.count(name) == 1
            require(right, f'{below}.name', name, allowed)
            weights, shares = file['weights'], file['shares_weights']
            right = shares == (weights is not None and weights == manifest['weights'])
            require(right, f'{below}.weights', weights, 'those that the graph reads')
