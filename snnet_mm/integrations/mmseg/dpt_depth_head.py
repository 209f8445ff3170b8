"""The depth head of DPT."""

from collections.abc import Sequence

import torch
from mmseg.models.decode_heads import DPTHead
from mmseg.models.utils import resize
from mmseg.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, register

READOUTS = ('ignore', 'add', 'project')


def check_depth_range(min_depth: float, max_depth: float) -> tuple[float, float]:
    """Return a range of depths in metres; refuse one that is empty or begins at 0."""
    depths = min_depth, max_depth
    ok = 0 < min_depth < max_depth
    check(ok, 'min_depth, max_depth', depths, '0 < min_depth < max_depth')
    return depths


@register(MODELS)
class DPTDepthHead(DPTHead):
    """mmseg's DPT head with one depth per pixel for output (SN-Netv2, section 5.3).

    Four maps of equal size are read out with their cls tokens, reassembled to four
    sizes and fused from coarse to fine. A sigmoid keeps the depth between its bounds.

    Args:
        post_process_channels: Widths of the four reassembled maps, fine to coarse.
        readout_type: What becomes of the cls token: ``'ignore'``, ``'add'`` to every
            patch, or ``'project'``, concatenated to every patch and projected. All
            but the first need a backbone with ``with_cls=True``.
        norm_cfg: Normalisation in the fusion blocks; None as in DPT's depth models.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int = 256,
        post_process_channels: Sequence[int] = (96, 192, 384, 768),
        readout_type: str = 'project',
        min_depth: float = 1e-3,
        max_depth: float = 10,
        norm_cfg: dict | None = None,
        loss_decode: dict | None = None,
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        ok, key = readout_type in READOUTS, 'decode_head.readout_type'
        check(ok, key, readout_type, READOUTS)
        widths, key = post_process_channels, 'decode_head.post_process_channels'
        check(len(widths) == 4, key, widths, 'four widths')
        super().__init__(
            embed_dims=in_channels,
            post_process_channels=list(widths),
            readout_type=readout_type,
            norm_cfg=norm_cfg,
            in_channels=[in_channels] * 4,
            in_index=[0, 1, 2, 3],
            input_transform='multiple_select',
            channels=channels,
            # What a segmentation head asks for: one output, no dropout.
            num_classes=1,
            threshold=0,
            dropout_ratio=0,
            loss_decode=loss_decode or dict(type='ScaleInvariantLogLoss'),
            init_cfg=init_cfg,
            **kwargs,
        )
        self.min_depth, self.max_depth = check_depth_range(min_depth, max_depth)
        del self.conv_seg
        self.conv_depth = nn.Sequential(
            nn.Conv2d(channels, channels // 2, 3, padding=1),
            nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True),
            nn.Conv2d(channels // 2, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 1, 1),
        )

    def cls_seg(self, feat: Tensor) -> Tensor:
        """Return depths ``(B, 1, 2h, 2w)`` in metres of features ``(B, C, h, w)``."""
        share = self.conv_depth(feat).sigmoid()
        return self.min_depth + (self.max_depth - self.min_depth) * share

    def loss_by_feat(
        self, depth: Tensor, batch_data_samples: Sequence
    ) -> dict[str, Tensor]:
        maps = [sample.gt_depth_map.data for sample in batch_data_samples]
        sizes = sorted({tuple(m.shape) for m in maps})
        keys = 'train_dataloader.dataset.pipeline, data_preprocessor.size'
        check(len(sizes) == 1, keys, sizes, 'depth maps of one size in a batch')
        truth = torch.stack(maps)
        depth = resize(
            depth, truth.shape[2:], mode='bilinear', align_corners=self.align_corners
        )
        return {self.loss_decode.loss_name: self.loss_decode(depth, truth)}

    def _transform_inputs(self, inputs: Sequence) -> list[tuple[Tensor, Tensor | None]]:
        pairs = [m if isinstance(m, tuple) else (m, None) for m in inputs]
        readout = self.reassemble_blocks.readout_type
        ok = readout == 'ignore' or all(cls is not None for _, cls in pairs)
        keys = 'backbone.with_cls, decode_head.readout_type'
        check(ok, keys, readout, "'ignore', or a backbone with with_cls=True")
        return pairs
