"""The base of all stitched backbones: anchors, a space, and the active stitch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import (
    Anchor,
    BackboneMap,
    BranchView,
    TokenState,
    check_outputs,
    check_tokens_correspond,
    image_channels,
    layer_depth_among,
)
from snnet_mm.stitching import (
    Position,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
    check_space_record,
    write_space_record,
)
from snnet_mm.utils import check

from ..layers.stitching_layer import StitchingLayer
from .walk import PrefixCache, Tap, walk

MAPS_OF = 'slowest', 'end'
# Torch stores the result of ``get_extra_state``, the space record, under this key.
SPACE_RECORD = '_extra_state'


class StitchedBackbone(BaseModule):
    """Anchors joined by stitching layers; runs the active stitch.

    A new backbone runs its slowest anchor; ``forward`` never chooses a stitch.

    Args:
        anchors: The anchors, ordered fast -> slow.
        space: Stitching space of the anchors' depths; its record is in the state dict.
        stitching_layer: Config of a stitching layer, without its widths.
        out: ``'maps'`` for a tuple of feature maps, or ``'end'`` for the final state of
            the end anchor.
        out_indices: Blocks of the slowest anchor whose maps are returned. If a route
            lacks a block, a stitching layer projects the map of its substitute.
        maps_of: ``'slowest'`` for maps of the slowest anchor's width, or ``'end'`` for
            maps of the end anchor, with its width; see :class:`PartPerAnchor`.
        with_cls: Whether to return each map with its cls token, as ``(map, cls)``.
        eval_maps: Positions in ``out_indices`` of the maps computed in eval mode; other
            maps are None. Default: all.
        plugins: Configs, by name, of plug-ins that change how stitches run, such as
            :class:`snnet_mm.esta.StitchBiases`.
    """

    # Whether routes with the same first steps share states; False if blocks differ.
    shares_prefixes = True
    # Height and width that images are resized to, or None; see ``set_input_size``.
    input_size: tuple[int, int] | None = None
    # Base class of the stitching layers that this kind of backbone accepts.
    layer_class: type[nn.Module] = StitchingLayer
    active_stitch: Stitch  # the one that ``forward`` runs

    def __init__(
        self,
        anchors: Sequence[Anchor],
        space: StitchingSpace,
        stitching_layer: dict,
        out: str = 'maps',
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        eval_maps: Sequence[int] | None = None,
        plugins: Mapping[str, dict] | None = None,
        maps_of: str = 'slowest',
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        # A plain ModuleList would hide the anchors' init_cfg from mmengine.
        self.anchors = ModuleList(anchors)
        self.space = space
        self.out, self.with_cls = out, with_cls
        self.out_indices = check_outputs(out, with_cls, out_indices, anchors)
        check(maps_of in MAPS_OF, 'backbone.maps_of', maps_of, MAPS_OF)
        self.maps_of = maps_of
        #: Sources of a map, by its block of the slowest anchor and its own anchor.
        self.map_sources: dict[tuple[int, int], Sequence[Tap]] = {}
        for a in self.map_anchors if out == 'maps' else ():
            for block in self.out_indices:  # raises if there is no source
                self.map_sources[block, a] = space.map_sources(block, a)
            own = tuple(self.map_sources[b, a][0][0].block for b in self.out_indices)
            stage_ends = self.runners[a].out_indices
            fits = own == stage_ends or not anchors[a].has_output_layers
            expected = f'{stage_ends}, the last blocks of stages in net.out_indices '
            expected += f'of anchor {a}'
            check(fits, 'backbone.out_indices', own, expected)
        places = range(len(self.out_indices))
        self.eval_maps = tuple(places if eval_maps is None else eval_maps)
        known = self.eval_maps and {*self.eval_maps} <= {*places}
        expected = f'places 0 to {places[-1]} in out_indices'
        check(known, 'backbone.eval_maps', self.eval_maps, expected)
        self.stitching_layers = self._build_layers(stitching_layer)
        # Saved, so that stitching layers of loaded weights are never fitted again.
        self.register_buffer('stitching_initialized', torch.tensor(False))
        self._prefixes: PrefixCache | None = None
        self.set_stitch(space.anchor_ids[-1])
        self.plugins = tuple(plugins or ())
        for name, config in (plugins or {}).items():
            self.add_module(name, MODELS.build(dict(config, backbone=self)))

    @property
    def runners(self) -> Sequence[Anchor | BranchView]:
        """The anchors, as routes run them step by step."""
        return self.anchors

    def set_stitch(self, stitch_id: int) -> None:
        """Activate a stitch; in models use :func:`~snnet_mm.models.set_stitch`."""
        self.active_stitch = self.space[stitch_id]
        if self._prefixes is not None:
            self._prefixes.rewind()

    def layer_arguments(self, spec: StitchingLayerSpec) -> dict:
        """Return the stitching layer's arguments that depend on the joined anchors."""
        source, target = spec
        return dict(in_dim=self.width_at(source), out_dim=self.width_at(target))

    def build_layer(
        self, name: str, spec: StitchingLayerSpec, config: dict
    ) -> nn.Module:
        """Return a new stitching layer."""
        layer = MODELS.build(dict(config, **self.layer_arguments(spec)))
        merged = layer.merged()
        lost = sorted(config.keys() - merged.config().keys()) if merged is layer else []
        expected = f'a type whose config() returns {lost} for exported stitches'
        check(not lost, 'backbone.stitching_layer', config, expected)
        return layer

    def exported_weights(self, stitch: Stitch) -> dict[str, Tensor]:
        """Return weights that a stitch alone has instead of the backbone's."""
        return {}

    def width_at(self, position: Position) -> int:
        """Return the number of channels at a position."""
        return self.runners[position.anchor].block_dims[max(position.block, 0)]

    def forward(self, images: Tensor) -> tuple[BackboneMap | None, ...] | TokenState:
        """Run the active stitch on images ``(B, 3, H, W)``.

        Returns:
            With ``out='maps'``, a map ``(B, C, h, w)`` per out index, or a pair of a
            map and a cls token ``(B, C)``. With ``out='end'``, the final state.
        """
        stitch, images = self.active_stitch, self._resized(images)
        blocks = {j: self.out_indices[j] for j in self.wanted_maps()}
        taps = {j: self.map_source(stitch, block) for j, block in blocks.items()}
        kept = None
        if self._prefixes is not None and not self.training:
            kept = self._prefixes.states(images, stitch.steps)
        parts = self.runners, self.stitching_layers
        end, states = walk(*parts, stitch.steps, images, taps.values(), kept)
        if self.out == 'end':
            return end
        maps: list[BackboneMap | None] = [None] * len(self.out_indices)
        anchor = self.anchors[self.map_anchor(stitch)]
        for j, tap in taps.items():
            maps[j] = anchor.to_output(states[tap], self.with_cls, j)
        return tuple(maps)

    def _resized(self, images: Tensor) -> Tensor:
        (height, width), size = images.shape[-2:], self.input_size
        if size in (None, (height, width)):
            return images
        expected = f'up to {height}x{width}, the size of the images; for more, '
        expected += 'raise the scale in the test pipeline'
        check(size[0] <= height and size[1] <= width, 'sizes', size, expected)
        return F.interpolate(images, size, mode='bilinear', antialias=True)

    @contextmanager
    def sharing_prefixes(self) -> Iterator[None]:
        """Run the common first blocks of stitches only once for the same images.

        In eval mode, a stitch resumes where its route leaves the previous stitch's
        route. Order them by :func:`snnet_mm.stitching.visiting_order` for best reuse.
        """
        if all(getattr(module, 'shares_prefixes', True) for module in self.modules()):
            self._prefixes = PrefixCache()
        try:
            yield
        finally:
            self._prefixes = None

    def wanted_maps(self) -> tuple[int, ...]:
        """Return positions in ``out_indices`` of the maps computed in this mode."""
        if self.out == 'end':
            return ()
        return tuple(range(len(self.out_indices))) if self.training else self.eval_maps

    @property
    def map_anchors(self) -> tuple[int, ...]:
        """The anchors to which the maps of the space's stitches belong."""
        return tuple(sorted({self.map_anchor(stitch) for stitch in self.space}))

    def map_anchor(self, stitch: Stitch) -> int:
        """Return the anchor to which the maps of a stitch belong."""
        return stitch.end_anchor if self.maps_of == 'end' else len(self.anchors) - 1

    def map_source(self, stitch: Stitch, block: int) -> Tap:
        """Return the tap for a stitch's map of a block of the slowest anchor."""
        sources = self.map_sources[block, self.map_anchor(stitch)]
        return next(s for s in sources if self.space.serves(stitch, *s))

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return a parameter's level and the level count, for mmpretrain's decay.

        Parameters of an anchor have the levels of :meth:`Anchor.layer_depth`. All
        others, such as those of stitching layers and heads, have the last level.
        """
        return layer_depth_among(self.anchors, param_name.removeprefix(prefix))

    def get_extra_state(self) -> Tensor:
        return as_space_record(self.space)

    def set_extra_state(self, state: Tensor) -> None:
        self.check_space_of({SPACE_RECORD: state})

    def check_space_of(
        self, weights: Mapping[str, Tensor], prefix: str = '', exact: bool = False
    ) -> bool:
        """Raise for weights of another space; see :func:`check_space_record`.

        The backbone's keys begin with ``prefix``. Returns False if the weights contain
        stitching layers but no record, else True.
        """
        if prefix + SPACE_RECORD not in weights:
            return not any(k.startswith(f'{prefix}stitching_layers.') for k in weights)
        record = weights[prefix + SPACE_RECORD]
        text = bytes(record.cpu().numpy()) if isinstance(record, Tensor) else b''
        check_space_record(text, self.space, exact)
        return True

    def _load_from_state_dict(self, state_dict: Mapping, prefix: str, *args) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        _, _, missing, *_ = args  # older weights have no record
        missing[:] = [key for key in missing if key != prefix + SPACE_RECORD]

    def _build_layers(self, config: dict) -> nn.ModuleDict:
        for name, joints in self.space.joints.items():
            widths = {tuple(map(self.width_at, joint)) for joint in joints}
            expected = f'False, as {name} would connect blocks of several widths'
            check(len(widths) == 1, 'backbone.share_layers', sorted(widths), expected)
        kind = config.get('type') if isinstance(config, dict) else None
        kind = MODELS.get(kind) if isinstance(kind, str) else kind
        fits = isinstance(kind, type) and issubclass(kind, self.layer_class)
        expected = f'a dict with the type {self.layer_class.__name__}'
        check(fits, 'backbone.stitching_layer', config, expected)
        layers = self.space.layers.items()
        return nn.ModuleDict({n: self.build_layer(n, at, config) for n, at in layers})


def build_anchors(anchors: Sequence[dict | Anchor]) -> list[Anchor]:
    """Build anchors from configs; raise if their tokens do not correspond."""
    listed = isinstance(anchors, Sequence | ModuleList)
    fits = listed and all(isinstance(a, dict | Anchor) for a in anchors)
    expected = 'a list of the configs of anchors, fast -> slow'
    check(fits, 'backbone.anchors', anchors, expected)
    built = [MODELS.build(a) if isinstance(a, dict) else a for a in anchors]
    for fast, slow in pairwise(built):
        widths = max(fast.block_dims), max(slow.block_dims)
        staged = max(len(fast.stages), len(slow.stages)) > 1
        expected = 'ascending widths, fast -> slow'
        check(staged or widths[0] <= widths[1], 'backbone.anchors', widths, expected)
        check_tokens_correspond(fast, slow)
        channels = image_channels(fast), image_channels(slow)
        key = 'backbone.anchors.in_channels'
        check(channels[0] == channels[1], key, channels, 'equal numbers of channels')
    return built


def as_space_record(space: StitchingSpace) -> Tensor:
    """Return the record of a space as bytes ``(N,)`` that a state dict can store."""
    record = bytearray(write_space_record(space).encode())
    return torch.frombuffer(record, dtype=torch.uint8)
