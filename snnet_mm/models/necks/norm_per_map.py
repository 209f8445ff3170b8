"""A norm for every map of a backbone."""

from __future__ import annotations

from collections.abc import Sequence

from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check

DEFAULT_NORM = dict(type='MapLayerNorm', eps=1e-5)


@MODELS.register_module('MapNorms')  # its name in earlier versions
@MODELS.register_module()
class NormPerMap(BaseModule):
    """Layer norms between a backbone and a dense head, one per map.

    Swin has them after its stages in mmseg and mmdet. As a neck they serve every
    stitch, whichever anchor its maps come from, and train at the rate of the head. In
    front of another neck, both go into a list: ``neck=[dict(type='NormPerMap', ...),
    dict(type='FPN', ...)]``.

    Args:
        in_channels: Channels of every map.
        norm_cfg: Config of the norms.
        init_cfg: mmengine's initialisation config.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        norm_cfg: dict = DEFAULT_NORM,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.norms = nn.ModuleList(
            MODELS.build(dict(norm_cfg, num_channels=channels))
            for channels in in_channels
        )

    def forward(self, maps: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Normalise maps ``(B, C, H, W)``; one that nothing reads, None, stays so."""
        wanted = f'{len(self.norms)} maps of the backbone, one per norm'
        check(len(maps) == len(self.norms), 'neck.in_channels', len(maps), wanted)
        return tuple(
            None if x is None else norm(x)
            for norm, x in zip(self.norms, maps, strict=True)
        )
