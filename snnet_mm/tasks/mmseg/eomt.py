"""EoMT as a decode head of mmsegmentation."""

from mmseg.models.decode_heads import Mask2FormerHead
from mmseg.registry import MODELS

from ..mmdet.eomt import EoMTHead


@MODELS.register_module()
class EoMTSegHead(EoMTHead, Mask2FormerHead):
    """:class:`EoMTHead` for semantic segmentation, with one mask per class present.

    Args:
        num_classes: Number of classes.
        ignore_index: Label of pixels without a class. Default: 255.
        align_corners: Alignment with which segmentors resize logits. Default: False.
        **kwargs: See :class:`EoMTHead`.
    """

    def __init__(
        self,
        num_classes: int,
        ignore_index: int = 255,
        align_corners: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(num_things_classes=0, num_stuff_classes=num_classes, **kwargs)
        self.out_channels, self.ignore_index = num_classes, ignore_index
        self.align_corners = align_corners
