"""Lists of stitches, as configs and command lines name them."""

from __future__ import annotations

from collections.abc import Sequence

from .space import StitchingSpace


def select_stitches(
    space: StitchingSpace, stitches: str | int | Sequence[int]
) -> tuple[int, ...]:
    """Stitch ids of a selection, in the order given.

    Args:
        space: The stitching space.
        stitches: ``'all'``, ``'anchors'``, one id, or several ids, also as text such as
            ``'0,5,12'``.

    Raises:
        ValueError: For another word, no ids at all, a repeated id, or one that is not
            in the space.
    """
    if stitches == 'all':
        return space.ids
    if stitches == 'anchors':
        return space.anchor_ids
    if isinstance(stitches, str):
        stitches = _parse_ids(stitches)
    ids = (stitches,) if isinstance(stitches, int) else tuple(stitches)
    if not ids or len(set(ids)) != len(ids):
        raise ValueError(
            f'stitches={ids} must be one or more ids, each once (config key: stitches; '
            'option: --stitch-id)'
        )
    return tuple(space[i].id for i in ids)


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(',')]
    except ValueError:
        raise ValueError(
            f"stitches={text!r}; allowed are 'all', 'anchors' and ids such as '0,5,12' "
            '(config key: stitches; option: --stitch-id)'
        ) from None
