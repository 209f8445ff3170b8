"""Stitching spaces: all stitches of a set of anchors, numbered."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from snnet_mm.utils import check, is_whole, refusal

from .routes import ANCHOR_KIND, Position, Stitch, StitchingLayerSpec, check_route


class StitchingSpace:
    """All stitches of a set of anchors, by stitch id.

    Args:
        depths: Number of blocks of every anchor, ordered fast -> slow.
        stitches: The stitches. Ids may have gaps, they never change their meaning.
        layers: The stitching layers by name; those that nothing uses are left out.
        map_layers: Names of layers that feature maps need besides those of the routes.
        ids: Keep only these stitches, and the anchors, under their numbers.
    """

    has_prior = True  # whether :func:`prior_scores` may guess

    def __init__(
        self,
        depths: Sequence[int],
        stitches: Sequence[Stitch],
        layers: Mapping[str, StitchingLayerSpec],
        map_layers: Collection[str] = (),
        ids: Collection[int] | None = None,
    ) -> None:
        self.depths = tuple(depths)
        self.anchor_names = _names(len(self.depths))
        for stitch in stitches:
            check_route(stitch, self.depths, layers)
        self._stitches = {s.id: s for s in sorted(stitches, key=lambda s: s.id)}
        if len(self._stitches) != len(stitches):
            raise ValueError('two stitches of a stitching space share an id')
        if ids is not None:
            listed = isinstance(ids, Collection) and not isinstance(ids, str)
            check(listed, 'backbone.stitch_ids', ids, 'a list of stitch ids')
            chosen = {*(self[i].id for i in ids), *self.anchor_ids}
            self._stitches = {i: s for i, s in self._stitches.items() if i in chosen}
        used = {name for stitch in self for name in stitch.layers} | set(map_layers)
        self.layers = {name: layers[name] for name in layers if name in used}

    def __len__(self) -> int:
        return len(self._stitches)

    def __iter__(self) -> Iterator[Stitch]:
        return iter(self._stitches.values())

    def __getitem__(self, stitch_id: int) -> Stitch:
        # True equals 1, and a list cannot be looked up.
        if is_whole(stitch_id) and stitch_id in self._stitches:
            return self._stitches[stitch_id]
        raise ValueError(
            f'stitch id {stitch_id!r} is not in the stitching space; allowed are '
            f'{_ranges(self.ids)} (config key: backbone.stitch_ids or stitches; '
            'option: --stitch-id)'
        )

    @property
    def ids(self) -> tuple[int, ...]:
        """All stitch ids, ascending."""
        return tuple(self._stitches)

    @property
    def anchor_ids(self) -> tuple[int, ...]:
        """Stitch ids of the anchors themselves, fast -> slow."""
        return tuple(s.id for s in self if s.kind == ANCHOR_KIND)

    @property
    def fingerprint(self) -> str:
        """Equal for spaces with the same routes under the same ids."""
        routes = [(s.id, [tuple(segment) for segment in s.segments]) for s in self]
        text = repr((self.depths, routes))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def substitutes(self, block: int) -> tuple[tuple[Position, str], ...]:
        """Blocks that serve the feature map of a block of the last anchor.

        Each comes with the stitching layer that projects it to the last anchor's width.
        A route without the block runs one of them or more; the first it runs counts.
        """
        wanted = f"'end', as a {type(self).__name__} gives no feature maps"
        raise refusal('backbone.out', 'maps', wanted)

    def describe(self, stitch: Stitch) -> str:
        """The route for people, such as ``'fast[0:4] > slow[8:24]'``."""
        return describe_route(stitch.segments, len(self.depths))


def layer_name(source: int, target: int, place: int) -> str:
    """Name of the stitching layer that leads from one anchor to another at a place."""
    return f'{source}to{target}_{place}'


def describe_route(segments: Iterable[Sequence[int]], num_anchors: int) -> str:
    """Segments as a route for people: first blocks, and the ones after the last."""
    names = _names(num_anchors)
    return ' > '.join(f'{names[a]}[{begin}:{end}]' for a, begin, end in segments)


def _names(num_anchors: int) -> tuple[str, ...]:
    many = tuple(f'anchor{i}' for i in range(num_anchors))
    return ('fast', 'slow') if num_anchors == 2 else many


def _ranges(ids: Sequence[int]) -> str:
    """``(0, 1, 2, 4)`` as ``'0-2, 4'``."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ', '.join(f'{a}-{b}' if a < b else f'{a}' for a, b in runs)
