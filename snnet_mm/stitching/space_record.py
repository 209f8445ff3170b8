"""The record of a stitching space in weights: ids never change their meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .routes import ANCHOR_KIND
from .space import StitchingSpace, describe_route

VERSION = 1
OPTIONS = (
    'config keys: backbone.type, backbone.anchors, and those that choose its stitches, '
    'such as backbone.kinds and backbone.stitch_ids'
)

Route = Sequence[Sequence]  # segments, and the stitching layers between them


def write_space_record(space: StitchingSpace) -> str:
    """All routes of a space by stitch id and its fingerprint, as versioned JSON."""
    record = dict(
        version=VERSION,
        fingerprint=space.fingerprint,
        depths=space.depths,
        stitches={s.id: (s.segments, s.layers) for s in space},
    )
    return json.dumps(record, separators=(',', ':'))


def check_space_record(
    text: str | bytes, space: StitchingSpace, exact: bool = False
) -> None:
    """Check that weights are of the stitches of a space.

    Every stitch must be in the record, by the same blocks and stitching layers; the
    record may hold more of them. Anchors by themselves need not be there.

    Args:
        text: Record of the weights; see :func:`write_space_record`.
        space: The space of the model that they are loaded into.
        exact: Whether the record must hold no other stitches, as for resumed trainings.
    """
    record = _parse(text)
    known: Mapping[str, Route] = record['stitches']
    both = (
        'the weights are of another stitching space than the model: of '
        f'{len(known)} stitches of anchors of depths {tuple(record["depths"])} '
        f'(fingerprint {record["fingerprint"]}), the model has {len(space)} of '
        f'{space.depths} ({space.fingerprint})'
    )
    for stitch in space:
        wanted = [[list(segment) for segment in stitch.segments], list(stitch.layers)]
        held = known.get(str(stitch.id))
        if held == wanted or (held is None and stitch.kind == ANCHOR_KIND):
            continue
        raise ValueError(
            f'{both}. Stitch {stitch.id} is '
            f'{_describe(held, record["depths"])} in the weights, '
            f'{_describe(wanted, space.depths)} in the model ({OPTIONS}). To start '
            'from the anchors in these weights, give each an init_cfg with a prefix '
            "such as 'backbone.anchors.0.'"
        )
    if exact and record['fingerprint'] != space.fingerprint:
        raise ValueError(
            f'{both}; a training goes on with the stitches it began '
            f'with ({OPTIONS}, resume)'
        )


def _parse(text: str | bytes) -> dict:
    of = 'the record of the stitching space in the weights'
    try:
        record = json.loads(text)
        version, stitches = record['version'], record['stitches']
        sound = isinstance(stitches, dict) and isinstance(record['depths'], list)
        record['fingerprint']
    except (ValueError, TypeError, KeyError) as error:
        reason = f'{type(error).__name__} {error}'
        raise ValueError(f'{of} is damaged: {reason}') from None
    if version != VERSION or not sound:
        raise ValueError(
            f'{of} has version {version!r}; this snnet_mm reads version {VERSION}: a '
            'newer one wrote them, or they are damaged'
        )
    return record


def _describe(route: Route | None, depths: Sequence[int]) -> str:
    if route is None:
        return 'unknown'
    segments, layers = route
    by = f' by {", ".join(layers)}' if layers else ''
    return f'{describe_route(segments, len(depths))}{by}'
