"""What every stitched backbone is: anchors, a space, and the active stitch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from mmengine.model import ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import (
    Anchor,
    BackboneMap,
    TokenState,
    check_out,
    check_out_indices,
    check_tokens_correspond,
    check_with_cls,
)
from snnet_mm.stitching import Position, Stitch, StitchingLayerSpec, StitchingSpace
from snnet_mm.utils import check

from ..layers.stitch_biases import StitchBiases
from ..layers.stitching_layer import StitchingLayer
from .prefix_cache import PrefixCache
from .route_walk import RouteWalk
from .space_in_weights import SpaceInWeights


class StitchedBackbone(SpaceInWeights, RouteWalk):
    """Anchors joined by stitching layers; runs the active stitch.

    ``forward`` never chooses a stitch: given the active one, its only randomness is
    drop path. A new backbone runs its slowest anchor.

    Args:
        anchors: The anchors, ordered fast -> slow; see :func:`build_anchors`.
        space: The stitching space of their depths.
        stitching_layer: Config of a stitching layer, without its widths.
        out: ``'maps'`` for a tuple of feature maps of the slowest anchor's width, which
            dense heads read, or ``'end'`` for the final state of the end anchor.
        out_indices: Blocks of the slowest anchor whose maps are returned. Where a
            route lacks a block, the faster block it belongs to stands in, projected to
            the slowest width.
        with_cls: Whether every map comes with the cls token of the same place, as
            ``(map, cls)``, through the same stitching layers. DPT's readout needs it.
        eval_maps: Places in ``out_indices`` whose maps are needed outside training,
            such as ``(3,)`` if only auxiliary heads read the others; these are then
            None. By default all.
        stitch_bias: Whether every stitch has biases of its own in the attention of the
            blocks that it runs; see :class:`snnet_mm.models.layers.StitchBiases`.
        init_cfg: mmengine's initialisation config.

    Raises:
        ValueError: For an unknown ``out``, an out index past the slow anchor's depth,
            ``eval_maps`` outside ``out_indices``, ``with_cls`` where an anchor has no
            cls token, anchors that cannot be joined, a stitching layer of a kind that
            is not for this backbone, or ``stitch_bias`` where an anchor takes no
            biases.
    """

    # Whether equal starts of routes have equal states: no, if blocks differ by stitch.
    shares_prefixes = True
    # Base class of the stitching layers that this kind of backbone takes.
    layer_class: type[nn.Module] = StitchingLayer

    def __init__(
        self,
        anchors: Sequence[Anchor],
        space: StitchingSpace,
        stitching_layer: dict,
        out: str = 'maps',
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        eval_maps: Sequence[int] | None = None,
        stitch_bias: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        # A plain ModuleList would hide the anchors' init_cfg from mmengine.
        self.anchors = ModuleList(anchors)
        self.space = space
        self.out = check_out(out)
        self.out_indices = check_out_indices(out_indices, self.anchors[-1].depth)
        if out == 'maps':
            for block in self.out_indices:
                space.substitutes(block)  # refuses at once if there are none
        self.with_cls = check_with_cls(with_cls, anchors)
        self.eval_maps = _check_eval_maps(eval_maps, len(self.out_indices))
        self._check_layer(stitching_layer)
        self.stitching_layers = nn.ModuleDict(
            {
                name: MODELS.build(dict(stitching_layer, **self.layer_arguments(spec)))
                for name, spec in space.layers.items()
            }
        )
        self.stitch_biases = _build_biases(space, anchors) if stitch_bias else None
        # Saved, so that weights which hold stitching layers are never fitted again.
        self.register_buffer('stitching_initialized', torch.tensor(False))
        self._prefixes: PrefixCache | None = None
        self.set_stitch(space.anchor_ids[-1])

    @property
    def active_stitch(self) -> Stitch:
        """The stitch that ``forward`` runs."""
        return self._active_stitch

    def set_stitch(self, stitch_id: int) -> None:
        """Choose the stitch that ``forward`` runs.

        :func:`snnet_mm.apis.set_stitch` does it in a whole model.

        Raises:
            ValueError: If the id is not in the stitching space.
        """
        self._active_stitch = self.space[stitch_id]
        if self._prefixes is not None:
            self._prefixes.rewind()

    def _check_layer(self, config: dict) -> None:
        key, base = 'backbone.stitching_layer', self.layer_class.__name__
        wanted = f'for {type(self).__name__} a dict with a type of {base}'
        kind = config.get('type') if isinstance(config, dict) else None
        kind = MODELS.get(kind) if isinstance(kind, str) else kind
        fits = isinstance(kind, type) and issubclass(kind, self.layer_class)
        check(fits, key, config, wanted)

    def layer_arguments(self, spec: StitchingLayerSpec) -> dict:
        """Arguments of a stitching layer that depend on what it joins."""
        source, target = spec
        return dict(in_dim=self.width_at(source), out_dim=self.width_at(target))

    def width_at(self, position: Position) -> int:
        """Width of the activations at a position."""
        return self.anchors[position.anchor].block_dims[max(position.block, 0)]

    def forward(self, images: Tensor) -> tuple[BackboneMap | None, ...] | TokenState:
        """Run the active stitch on images ``(B, 3, H, W)``.

        Returns:
            With ``out='maps'`` one map ``(B, C_slow, h, w)`` per out index, or one
            pair of a map and a cls token ``(B, C_slow)``; with ``out='end'`` the end
            anchor's own final state.
        """
        sources = {
            j: self.map_source(self.active_stitch, self.out_indices[j])
            for j in self.wanted_maps()
        }
        taps = {position for position, _ in sources.values()}
        steps, path = self.active_stitch.steps, None
        if self._prefixes is not None and not self.training:
            path = self._prefixes.resume(images, steps)
        biases = None
        if self.stitch_biases is not None:
            biases = self.stitch_biases(self.active_stitch.id)
        end, tapped = self.walk(steps, images, taps, path, biases)
        if self.out == 'end':
            return end.state
        maps: list[BackboneMap | None] = [None] * len(self.out_indices)
        for j, (position, layer) in sources.items():
            stop = tapped[position]
            served = stop.state if layer is None else self.cross(layer, stop)
            maps[j] = self.anchors[-1].to_output(served, self.with_cls)
        return tuple(maps)

    @contextmanager
    def sharing_prefixes(self) -> Iterator[None]:
        """Run what stitches have in common once, for stitches that see the same images.

        Inside, in eval mode, a stitch goes on from where its route leaves that of the
        stitch before it; the results are the same. The states of one route are kept,
        one per crop, until the context ends. Visit stitches in the order of
        :func:`snnet_mm.stitching.visiting_order`. Stitches with biases of their own
        have nothing in common: each of them is run from the beginning.
        """
        shares = self.shares_prefixes and self.stitch_biases is None
        self._prefixes = PrefixCache() if shares else None
        try:
            yield
        finally:
            self._prefixes = None

    def wanted_maps(self) -> tuple[int, ...]:
        """Places in ``out_indices`` of the maps that are computed in this mode."""
        if self.out == 'end':
            return ()
        return tuple(range(len(self.out_indices))) if self.training else self.eval_maps

    def map_source(self, stitch: Stitch, block: int) -> tuple[Position, str | None]:
        """Where a stitch takes the map of a block of the slowest anchor from.

        Returns:
            A position on the route, and the stitching layer that projects it to the
            slowest width, None if none is needed.
        """
        slow = Position(len(self.anchors) - 1, block)
        sources = ((slow, None), *self.space.substitutes(block))
        return next(source for source in sources if stitch.runs(source[0]))


def build_anchors(anchors: Sequence[dict | Anchor]) -> list[Anchor]:
    """Build anchors from configs, and refuse those whose tokens do not correspond.

    Raises:
        ValueError: If the anchors differ in their number of stages, the strides of
            these or their prefix tokens, or plain ones are not ordered by width.
    """
    listed = isinstance(anchors, Sequence | ModuleList) and not isinstance(anchors, str)
    if not listed or not all(isinstance(a, dict | Anchor) for a in anchors):
        raise ValueError(
            f'anchors={anchors!r}; wanted is a list of the configs of anchors, fast '
            '-> slow (config key: backbone.anchors)'
        )
    built = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
    for fast, slow in pairwise(built):
        plain = len(fast.stages) == len(slow.stages) == 1
        if plain and max(fast.block_dims) > max(slow.block_dims):
            raise ValueError(
                f'anchors of widths {max(fast.block_dims)}, {max(slow.block_dims)} are '
                'out of order; they go fast -> slow (config key: backbone.anchors)'
            )
        check_tokens_correspond(fast, slow)
    return built


def _build_biases(space: StitchingSpace, anchors: Sequence[Anchor]) -> StitchBiases:
    widths = [[a.bias_widths(i) for i in range(a.depth)] for a in anchors]
    for anchor, of_blocks in zip(anchors, widths, strict=True):
        if not all(of_blocks):
            raise ValueError(
                f'stitch_bias=True, but {type(anchor).__name__} takes no biases of a '
                "stitch; allowed are anchors of type='PlainViT' (config keys: "
                'backbone.stitch_bias, backbone.anchors)'
            )
    return StitchBiases(space, widths)


def _check_eval_maps(eval_maps: Sequence[int] | None, num_maps: int) -> tuple[int, ...]:
    if eval_maps is None:
        return tuple(range(num_maps))
    wrong = [j for j in eval_maps if not 0 <= j < num_maps]
    if wrong or not eval_maps:
        raise ValueError(
            f'eval_maps={tuple(eval_maps)}; allowed are places 0 to {num_maps - 1} in '
            'out_indices (config key: backbone.eval_maps)'
        )
    return tuple(eval_maps)
