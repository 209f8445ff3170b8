"""One network stitched to itself."""

from collections.abc import Collection, Mapping, Sequence

from mmengine.registry import MODELS

from snnet_mm.anchors import Anchor
from snnet_mm.stitching import SkipSpace
from snnet_mm.utils import check, register

from .stitched_backbone import StitchedBackbone, build_anchors


@register(MODELS)
class ElasticBackbone(StitchedBackbone):
    """A network and chains that skip some of its blocks.

    A stitching layer replaces each gap, a run of skipped blocks. The network itself,
    stitch 0, is unchanged. :func:`snnet_mm.make_elastic` selects chains and fits their
    layers.

    Args:
        anchors: The network or its config, in a list of one.
        chains: Blocks that each chain keeps, with chains in order of decreasing cost.
        stitching_layer: Config of the stitching layers, without widths. Default: affine
            layers, which map prefix tokens separately if heads may read them.
        out_indices: Blocks whose maps are returned. Default: the network's own.
        stitch_ids: Stitches to keep besides the network. Default: all.
        out, **kwargs: See :class:`StitchedBackbone`.

    Examples:
        >>> net = dict(
        ...     type='PlainViT',
        ...     arch=dict(embed_dims=32, depth=4, num_heads=2),
        ...     img_size=32,
        ... )
        >>> backbone = ElasticBackbone([net], chains=[(0, 1, 3), (1,)])
        >>> [backbone.space.describe(stitch) for stitch in backbone.space]
        ['network[0:4]', 'network[0:2] > network[3:4]', 'network[1:2]']
    """

    def __init__(
        self,
        anchors: Sequence[dict | Anchor],
        chains: Sequence[Sequence[int]],
        stitching_layer: dict | None = None,
        out: str = 'maps',
        out_indices: Sequence[int] | None = None,
        stitch_ids: Collection[int] | None = None,
        **kwargs,
    ) -> None:
        anchors = build_anchors(anchors)
        check(len(anchors) == 1, 'backbone.anchors', len(anchors), 'one network')
        (anchor,) = anchors
        out_indices = anchor.out_indices if out_indices is None else out_indices
        read = {i % anchor.depth for i in out_indices} if out == 'maps' else ()
        space = SkipSpace(anchor.depth, chains, read, skippable(anchor), stitch_ids)
        layer = stitching_layer or dict(type='StitchingLayer')
        if stitching_layer is None and (number := read_prefix(anchor, out)):
            layer = dict(type='PrefixStitchingLayer', num_prefix=number)
        more = dict(kwargs, out=out, out_indices=out_indices)
        super().__init__(anchors, space, layer, **more)

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


def read_prefix(anchor: Anchor, out: str) -> int:
    """Return the number of prefix tokens, or 0 if no output contains them."""
    return anchor.num_prefix if out == 'end' or anchor.outputs_prefix else 0


def skippable(anchor: Anchor) -> tuple[int, ...]:
    """Return the blocks that change neither the width nor the stride.

    They exclude the first block of a network with stages.
    """
    scales = list(zip(anchor.block_dims, anchor.block_strides, strict=True))
    first = [0] if len(set(scales)) == 1 else []
    return (*first, *(i for i in range(1, anchor.depth) if scales[i] == scales[i - 1]))
