"""Stitching spaces: all stitches of a set of anchors, numbered, and their records."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from snnet_mm.utils import check, is_whole

from .routes import ANCHOR_KIND, Position, Stitch, StitchingLayerSpec

Substitute = tuple[Position, str]  # a block, and the layer that projects its map
RECORD_VERSION = 1
OPTIONS = (
    'config keys: backbone.type, backbone.anchors, and those that choose its stitches, '
    'such as backbone.kinds and backbone.stitch_ids'
)


class StitchingSpace:
    """All stitches of a set of anchors, by stitch id.

    Args:
        depths: Number of blocks of every anchor, ordered fast -> slow.
        stitches: The stitches. Ids need not be contiguous; their meaning is fixed.
        layers: The stitching layers by name; unused ones are dropped.
        ids: Stitches to keep besides the anchors, under the same ids; by default all.
        substitutes: Substitutes of every place that may serve a feature map: the blocks
            that replace it on routes without it, and the layers that project their
            maps. Places are in the last anchor or, with ``end_maps``, in every anchor
            in which routes end.
        unused: Names of layers to keep even if unused.
        end_maps: Whether feature maps come from the anchor in which a route ends.
    """

    has_prior = True  # whether :func:`prior_scores` supports the space

    def __init__(
        self,
        depths: Sequence[int],
        stitches: Sequence[Stitch],
        layers: Mapping[str, StitchingLayerSpec],
        ids: Collection[int] | None = None,
        substitutes: Mapping[Position, Sequence[Substitute]] | None = None,
        unused: Collection[str] = (),
        end_maps: bool = False,
    ) -> None:
        self.depths = tuple(depths)
        self._substitutes = substitutes or {}
        names = {1: ('network',), 2: ('fast', 'slow')}
        numbered = tuple(f'anchor{i}' for i in range(len(self.depths)))
        self.anchor_names = names.get(len(self.depths), numbered)
        self._stitches = {s.id: s for s in sorted(stitches, key=lambda s: s.id)}
        if ids is not None:
            listed = isinstance(ids, Collection) and not isinstance(ids, str)
            check(listed, 'backbone.stitch_ids', ids, 'a list of stitch ids')
            chosen = {*(self[i].id for i in ids), *self.anchor_ids}
            self._stitches = {i: s for i, s in self._stitches.items() if i in chosen}
        used = {name for stitch in self for name in stitch.layers} | set(unused)
        for place, found in self._substitutes.items():
            if not end_maps:
                used |= {name for _, name in found}
                continue
            for stitch in self:
                if stitch.end_anchor == place.anchor and not stitch.runs(place):
                    used.add(next(name for p, name in found if stitch.runs(p)))
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
            f'stitch id {stitch_id!r} is not in the stitching space: expected one of '
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

    @cached_property
    def joints(self) -> dict[str, tuple[StitchingLayerSpec, ...]]:
        """All joints of every stitching layer; its own spec if no stitch uses it."""
        found: dict[str, set[StitchingLayerSpec]] = {n: set() for n in self.layers}
        for stitch in self:
            joints = zip(stitch.layers, pairwise(stitch.segments), strict=True)
            for name, ((a, _, end), (b, begin, _)) in joints:
                joint = Position(a, end - 1), Position(b, begin - 1)
                found[name].add(StitchingLayerSpec(*joint))
        return {n: tuple(sorted(found[n])) or (s,) for n, s in self.layers.items()}

    @property
    def fingerprint(self) -> str:
        """Hash of the depths and of the routes by stitch id."""
        routes = [(s.id, [tuple(segment) for segment in s.segments]) for s in self]
        return fingerprint_of((self.depths, routes))

    def map_sources(
        self, block: int, anchor: int
    ) -> tuple[tuple[Position, str | None], ...]:
        """Return the possible sources of an anchor's map at a last-anchor block.

        The anchor's own corresponding block comes first, without a layer. The others
        come with the stitching layer that projects their maps to the anchor's width. A
        route has the map of the first source that it runs.
        """
        kind, last = type(self).__name__, len(self.depths) - 1
        expected = f"'end', as a {kind} gives no feature maps"
        check(self._substitutes, 'backbone.out', 'maps', expected)
        blocks = sorted(p.block for p in self._substitutes if p.anchor == last)
        expected = f'{_ranges(blocks)}, whose maps all routes provide'
        check(block in blocks, 'backbone.out_indices', block, expected)
        place = Position(last, block)
        if anchor != last:
            found = self._substitutes[place]
            place = next((p for p, _ in found if p.anchor == anchor), None)
            expected = f"'slowest' for a {kind} without end_maps"
            check(place in self._substitutes, 'backbone.maps_of', 'end', expected)
        return (place, None), *self._substitutes[place]

    def serves(self, stitch: Stitch, place: Position, layer: str | None) -> bool:
        """Return whether a stitch has the map of an entry of :meth:`map_sources`."""
        return stitch.runs(place)

    def branches(self, stitch: Stitch) -> list[tuple[int, int, int]] | None:
        """Return block, running units and all units of every branch of a stitch.

        None in spaces of whole blocks.
        """
        return None

    def describe(self, stitch: Stitch) -> str:
        """Return a readable route, such as ``'fast[0:4] > slow[8:24]'``."""
        return ' > '.join(
            f'{self.anchor_names[a]}[{begin}:{end}]'
            for a, begin, end in stitch.segments
            if begin < end
        )


def fingerprint_of(value: object) -> str:
    """Return a short hash of a value of Python's own types."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def middle_stitches(space: StitchingSpace) -> list[int]:
    """Return the anchors' ids and, for every other kind, the middle one of its ids."""
    ids: dict[str, list[int]] = {}
    for stitch in space:
        ids.setdefault(stitch.kind, []).append(stitch.id)
    ids.pop(ANCHOR_KIND)
    return [*space.anchor_ids, *(kind[len(kind) // 2] for kind in ids.values())]


def layer_name(source: int, target: int, place: int) -> str:
    """Return the name of the stitching layer between two anchors at a place."""
    return f'{source}to{target}_{place}'


def write_space_record(space: StitchingSpace) -> str:
    """Return the fingerprint and all routes of a space as versioned JSON."""
    record = dict(
        version=RECORD_VERSION,
        fingerprint=space.fingerprint,
        depths=space.depths,
        stitches={s.id: _recorded(s) for s in space},
    )
    return json.dumps(record, separators=(',', ':'))


def check_space_record(
    text: str | bytes, space: StitchingSpace, exact: bool = False
) -> None:
    """Raise if a space record in weights does not match a space.

    The record must contain every stitch of the space except the anchors, with the same
    blocks and stitching layers. It may contain more stitches unless ``exact``, as for
    resumed trainings. Anchors that it contains must match, too.
    """
    record = json.loads(text)
    if record['version'] != RECORD_VERSION:
        raise ValueError(
            'a newer snnet_mm wrote the weights: their record of the stitching space '
            f'has version {record["version"]!r}, expected {RECORD_VERSION}'
        )
    known, fingerprint = record['stitches'], record['fingerprint']
    both = (
        'the weights are of another stitching space than the model: of '
        f'{len(known)} stitches of anchors of depths {tuple(record["depths"])} '
        f'(fingerprint {fingerprint}), the model has {len(space)} of {space.depths} '
        f'({space.fingerprint})'
    )
    for stitch in space:
        wanted = _recorded(stitch)
        held = known.get(str(stitch.id))
        if held != wanted and (held is not None or stitch.kind != ANCHOR_KIND):
            raise ValueError(
                f'{both}. Stitch {stitch.id} is {held or "unknown"} in the weights, '
                f'{wanted} in the model: segments [anchor, begin, end], stitching '
                f'layers and scale, if any ({OPTIONS}). To start from the anchors in '
                'these weights, give each an init_cfg with a prefix such as '
                "'backbone.anchors.0.'"
            )
    if exact and fingerprint != space.fingerprint:
        raise ValueError(
            f'{both}; a training goes on with the stitches it began '
            f'with ({OPTIONS}, resume)'
        )


def _recorded(stitch: Stitch) -> list:
    """Return what a record holds of a stitch; its scale only if it is not 1."""
    scale = [] if stitch.scale == 1 else [stitch.scale]
    return [[*map(list, stitch.segments)], [*stitch.layers], *scale]


def _ranges(ids: Sequence[int]) -> str:
    """Format ``(0, 1, 2, 4)`` as ``'0-2, 4'``."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ', '.join(f'{a}-{b}' if a < b else f'{a}' for a, b in runs)
