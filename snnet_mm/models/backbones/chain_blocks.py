"""Copies of the network's blocks, each of which belongs to one chain."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.stitching import SKIP_KIND, Stitch
from snnet_mm.utils import check, register
from snnet_mm.utils.base_checkpoint import with_prefixes
from snnet_mm.utils.checkpoints import ADDED

from .stitch_plugin import StitchPlugin
from .stitched_backbone import StitchedBackbone

NAME = 'chain_blocks'  # the plug-in's name in every backbone
ADDED[rf'(^|\.){NAME}\.'] = 'model.backbone.plugins'


@register(MODELS)
class ChainBlocks(StitchPlugin):
    """Copies of the network's blocks that replace them in some chains.

    A plug-in of an :class:`ElasticBackbone`, registered as ``chain_blocks``. Embedding
    and final norm remain the network's. The plug-in disables
    :meth:`StitchedBackbone.sharing_prefixes` for all stitches of the backbone.

    Args:
        backbone: The backbone.
        stitches: Ids of the chains.

    Raises:
        ValueError: If a stitch is not a chain, or is listed twice.
    """

    def __init__(self, backbone: StitchedBackbone, stitches: Sequence[int]) -> None:
        super().__init__(backbone)
        chains = [s.id for s in backbone.space if s.kind == SKIP_KIND]
        known = len({*stitches}) == len(stitches) and {*stitches} <= {*chains}
        key = 'backbone.plugins.stitches'
        check(known, key, stitches, f'some of the chains {chains}, each once')
        (anchor,) = backbone.anchors
        self._anchor = (anchor,)  # a tuple, so as not to register it twice
        self._network: dict[str, nn.Module] = {}  # blocks currently replaced
        for i in stitches:
            runs = [s.block for s in backbone.space[i].steps if not isinstance(s, str)]
            blocks = {str(b): deepcopy(self._block(b)) for b in runs if b >= 0}
            self.add_module(str(i), nn.ModuleDict(blocks))

    def copy_network(self) -> None:
        """Reset all copies to the weights of the network's blocks."""
        for copies in self.children():
            for number, block in copies.items():
                block.load_state_dict(self._block(int(number)).state_dict())

    def exported_weights(
        self, stitch: Stitch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        (anchor,) = self._anchor
        renames = {
            f'{NAME}.{stitch.id}.{n}.': f'anchors.0.{anchor.block_path(int(n))}.'
            for n, _ in self._copies(stitch)
        }
        own = {k: v for k, v in weights.items() if k.startswith((*renames,))}
        return with_prefixes(own, renames)

    def _apply_to(self, stitch: Stitch) -> None:
        (anchor,) = self._anchor
        for number, block in self._copies(stitch):
            path = anchor.block_path(int(number))
            # An unfinished forward may have left a copy here: keep the first entry.
            self._network.setdefault(path, anchor.get_submodule(path))
            anchor.set_submodule(path, block)

    def _undo(self, stitch: Stitch) -> None:
        (anchor,) = self._anchor
        for path, block in self._network.items():
            anchor.set_submodule(path, block)
        self._network = {}

    def _block(self, i: int) -> nn.Module:
        (anchor,) = self._anchor
        return anchor.get_submodule(anchor.block_path(i))

    def _copies(self, stitch: Stitch) -> list[tuple[str, nn.Module]]:
        own = str(stitch.id)
        return [*getattr(self, own).items()] if own in self._modules else []
