"""The depth head of DPT."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mmseg.models.decode_heads import DPTHead
from mmseg.models.utils import resize
from mmseg.registry import MODELS
from torch import Tensor, nn

READOUTS = ('ignore', 'add', 'project')


def check_depth_range(min_depth: float, max_depth: float) -> tuple[float, float]:
    """A range of depths in metres.

    Raises:
        ValueError: If it is empty or begins at 0 or below.
    """
    if not 0 < min_depth < max_depth:
        raise ValueError(
            f'min_depth={min_depth} and max_depth={max_depth}; allowed are '
            '0 < min_depth < max_depth (config keys: min_depth, max_depth)'
        )
    return min_depth, max_depth


@MODELS.register_module()
class DPTDepthHead(DPTHead):
    """mmseg's DPT head with one depth per pixel for output (SN-Netv2, section 5.3).

    Four maps of equal size are read out with their cls tokens, reassembled to four
    sizes and fused from coarse to fine. A sigmoid keeps the depth between its bounds.

    Args:
        in_channels: Width of the maps, that of the slow anchor.
        channels: Width of the fusion blocks.
        post_process_channels: Widths of the four reassembled maps, fine to coarse.
        readout_type: What becomes of the cls token: ``'ignore'``, ``'add'`` to every
            patch, or ``'project'``, concatenated to every patch and projected. All
            but the first need a backbone with ``with_cls=True``.
        min_depth: Least depth in metres.
        max_depth: Greatest depth in metres.
        norm_cfg: Normalisation in the fusion blocks; None as in DPT's depth models.
        loss_decode: Config of the loss.
        align_corners: How the depth is resized to the size of the images.
        init_cfg: mmengine's initialisation config.

    Raises:
        ValueError: For an unknown readout, other than four widths, or an empty range
            of depths.
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
        align_corners: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        if readout_type not in READOUTS:
            raise ValueError(
                f'readout_type={readout_type!r}; allowed are {READOUTS} (config key: '
                'decode_head.readout_type)'
            )
        if len(post_process_channels) != 4:
            raise ValueError(
                f'post_process_channels={tuple(post_process_channels)}; allowed are '
                'four widths (config key: decode_head.post_process_channels)'
            )
        super().__init__(
            embed_dims=in_channels,
            post_process_channels=list(post_process_channels),
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
            align_corners=align_corners,
            init_cfg=init_cfg,
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
        """Depths ``(B, 1, 2h, 2w)`` in metres, of features ``(B, C, h, w)``."""
        share = self.conv_depth(feat).sigmoid()
        return self.min_depth + (self.max_depth - self.min_depth) * share

    def loss_by_feat(
        self, depth: Tensor, batch_data_samples: Sequence
    ) -> dict[str, Tensor]:
        """The loss of depths ``(B, 1, h, w)``, resized to the size of the truth.

        Raises:
            ValueError: If the depth maps of a batch differ in size.
        """
        maps = [sample.gt_depth_map.data for sample in batch_data_samples]
        sizes = {tuple(m.shape) for m in maps}
        if len(sizes) > 1:
            raise ValueError(
                f'depth maps of sizes {sorted(sizes)} in one batch; allowed is one '
                'size (config keys: train_dataloader.dataset.pipeline, '
                'data_preprocessor.size)'
            )
        truth = torch.stack(maps)
        depth = resize(
            depth, truth.shape[2:], mode='bilinear', align_corners=self.align_corners
        )
        return {self.loss_decode.loss_name: self.loss_decode(depth, truth)}

    def _transform_inputs(self, inputs: Sequence) -> list[tuple[Tensor, Tensor | None]]:
        """Four pairs of a map and a cls token, None if the readout ignores it."""
        pairs = [m if isinstance(m, tuple) else (m, None) for m in inputs]
        readout = self.reassemble_blocks.readout_type
        if readout != 'ignore' and any(cls is None for _, cls in pairs):
            raise ValueError(
                f'readout_type={readout!r} of maps without a cls token; allowed are '
                "'ignore', or a backbone with with_cls=True (config keys: "
                'decode_head.readout_type, backbone.with_cls)'
            )
        return pairs
