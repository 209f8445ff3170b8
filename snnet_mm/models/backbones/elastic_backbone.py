"""One network stitched to itself."""

from collections.abc import Collection, Mapping, Sequence

from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, BackboneMap, BranchView, TokenState
from snnet_mm.stitching import SkipSpace, Stitch, StitchingLayerSpec, read_plan
from snnet_mm.utils import check

from ..layers.narrow_branch import NarrowBranch, UnitOrder
from .scaling import maps_at, scaled_images, scaled_size
from .stitched_backbone import StitchedBackbone, build_anchors


@MODELS.register_module()
class ElasticBackbone(StitchedBackbone):
    """A network, and chains that skip or narrow some of its residual branches.

    An affine map replaces each gap, a run of skipped branches, and a
    :class:`NarrowBranch` each branch with some of its hidden units. Maps of gaps have a
    separate map of prefix tokens if heads may read these. The network itself, stitch 0,
    is unchanged. :func:`snnet_mm.make_elastic` selects chains and fits them.

    Args:
        anchors: The network or its config, in a list of one.
        chains: Plans of the chains in order of decreasing cost, such as ``'0:3/768
            1:0/768'``: the heads and neurons of every block that is not whole. A chain
            such as ``'0.7x: 0:3/768'`` runs on images with 0.7 of the height and width,
            rounded to whole patches; ``'0.7x'`` is the whole network there.
        out_indices: Blocks whose maps are returned. Default: the network's own.
        stitch_ids: Stitches to keep besides the network. Default: all.
        full_maps: Whether maps of scaled images are resized to the size that the images
            themselves give, as heads need that compute pixels from the positions of
            cells. Heads of mmseg and mmpretrain do not: they resize their logits.
        out, **kwargs: See :class:`StitchedBackbone`.

    Examples:
        >>> net = dict(
        ...     type='PlainViT',
        ...     arch=dict(embed_dims=32, depth=2, num_heads=4),
        ...     img_size=32,
        ... )
        >>> backbone = ElasticBackbone([net], chains=['0:4/64', '0:0/64 1:2/0'])
        >>> [backbone.space.describe(stitch) for stitch in backbone.space]
        ['network', '0:4/64 1:4/128', '0:0/64 1:2/0']
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        chains: Sequence[str],
        out: str = 'maps',
        out_indices: Sequence[int] | None = None,
        stitch_ids: Collection[int] | None = None,
        full_maps: bool = True,
        **kwargs,
    ) -> None:
        anchors = build_anchors(anchors)
        check(len(anchors) == 1, 'backbone.anchors', len(anchors), 'one network')
        (anchor,) = anchors
        self.view = BranchView(anchor)
        out_indices = anchor.out_indices if out_indices is None else out_indices
        read = {i % anchor.depth for i in out_indices} if out == 'maps' else ()
        space = space_of_chains(self.view, chains, read, stitch_ids)
        self._gap = dict(type='StitchingLayer')
        if anchor.num_prefix and (out == 'end' or anchor.outputs_prefix):
            self._gap = dict(type='PrefixStitchingLayer', num_prefix=anchor.num_prefix)
        steps = sorted({step for step, _ in space.narrow.values()})
        self._orders = {step: UnitOrder(self.view.widths[step]) for step in steps}
        super().__init__(
            anchors, space, self._gap, out=out, out_indices=out_indices, **kwargs
        )
        self.full_maps = full_maps
        named = {str(step): order for step, order in self._orders.items()}
        self.unit_orders = nn.ModuleDict(named)

    @property
    def runners(self) -> Sequence[BranchView]:
        return (self.view,)

    def forward(self, images: Tensor) -> tuple[BackboneMap | None, ...] | TokenState:
        output, scale = super().forward(images), self.active_stitch.scale
        if scale == 1 or self.out == 'end' or not self.full_maps:
            return output
        size = self.input_size or tuple(images.shape[-2:])
        return maps_at(size, scaled_size(size, scale, self.view.anchor), output)

    def _resized(self, images: Tensor) -> Tensor:
        scale = self.active_stitch.scale
        return scaled_images(super()._resized(images), scale, self.view.anchor)

    def build_layer(
        self, name: str, spec: StitchingLayerSpec, config: dict
    ) -> nn.Module:
        if name not in self.space.narrow:
            return super().build_layer(name, spec, config)
        step, units = self.space.narrow[name]
        dim, branch = self.width_at(spec.target), self.view.steps[step].branch
        return NarrowBranch(branch, units, dim, self._orders[step], step)

    def gap_layer(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return a new map of a gap between two widths."""
        return MODELS.build(dict(self._gap, in_dim=in_dim, out_dim=out_dim))

    def exported_config(self, stitch: Stitch, net: Mapping) -> dict:
        """Return the config of a stitch alone; ``net`` is that of the network."""
        outputs = dict(out=self.out, with_cls=self.with_cls)
        if self.out == 'maps':
            outputs['out_indices'] = self.out_indices
        chain = self.space.describe(stitch) if stitch.id else ''
        if stitch.scale != 1:
            outputs['full_maps'] = self.full_maps
        config = dict(type='ChainAnchor', net=net, chain=chain, **outputs)
        if {*stitch.layers} - self.space.narrow.keys():
            config['stitching_layer'] = dict(self._gap)
        return config

    def exported_weights(self, stitch: Stitch) -> dict[str, Tensor]:
        net = self.view.anchor
        weights = {f'net.{name}': value for name, value in net.state_dict().items()}
        for name in stitch.layers:
            layer, end = self.stitching_layers[name], self.space.layers[name]
            for key, value in layer.state_dict().items():
                weights[f'layers.{end.target.block}.{key}'] = value
            if name in self.space.narrow:
                step, units = self.space.narrow[name]
                own = self.view.steps[step]
                path = f'net.{net.block_path(own.block)}.'
                cut = own.branch.tensors(self._orders[step].index, units)
                weights |= {path + name: value for name, value in cut.items()}
        return weights

    def train(self, mode: bool = True) -> 'ElasticBackbone':
        self.view.forget()
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: Mapping, prefix: str, *args) -> None:
        # A non-strict load would silently keep random weights of the network.
        held = {k.removeprefix(prefix).partition('.')[0] for k in state_dict}
        if 'stitching_layers' in held and 'anchors' not in held:
            raise ValueError(
                'the checkpoint holds stitching layers but no weights of the network: '
                'load it with snnet_mm.init_model or the tools of snnet_mm, which join '
                'it with its base, or write one file with tools/make_elastic.py --whole'
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


def space_of_chains(
    view: BranchView,
    chains: Sequence[str],
    read: Collection[int] = (),
    ids: Collection[int] | None = None,
    key: str = 'backbone.chains',
) -> SkipSpace:
    """Return the space of a network and its chains; see :class:`SkipSpace`."""
    widths, blocks = view.widths, view.blocks
    named = {f'{key}[{n}]': text for n, text in enumerate(chains)}
    read_chains = [read_plan(t, widths, blocks, name) for name, t in named.items()]
    plans, scales = zip(*read_chains, strict=True) if read_chains else ((), ())
    more = view.skippable, ids, key, scales
    return SkipSpace(widths, plans, blocks, read, *more)
