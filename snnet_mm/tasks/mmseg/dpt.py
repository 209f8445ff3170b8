"""Depth estimation with DPT: loading, loss, head and estimator."""

from collections.abc import Sequence

import torch
from mmengine.logging import MessageHub
from mmseg.datasets.transforms import LoadDepthAnnotation
from mmseg.models import DepthEstimator
from mmseg.models.decode_heads import DPTHead
from mmseg.models.utils import resize
from mmseg.registry import MODELS, TRANSFORMS
from torch import Tensor, nn

from snnet_mm.utils import check

MODES = ('whole', 'slide')
ACTIVATIONS = ('sigmoid', 'relu')
EPS = 1e-3
MEAN_WEIGHT = 0.15
# Lower bound, because the gradient of the square root is infinite at 0.
MIN_SQUARE = 1e-12


@TRANSFORMS.register_module()
class LoadDepthMap(LoadDepthAnnotation):
    """Loads a depth map in metres with mmseg; validates its size against the image."""

    def __init__(self, depth_rescale_factor: float = 1e-3, **kwargs) -> None:
        super().__init__(depth_rescale_factor=depth_rescale_factor, **kwargs)

    def transform(self, results: dict) -> dict:
        """Add ``gt_depth_map`` (H, W) in metres, 0 where depth is missing."""
        results = super().transform(results)
        shape, size = results['gt_depth_map'].shape, tuple(results['ori_shape'][:2])
        found, key = f'{results["depth_map_path"]} of {shape}', 'dataset.data_prefix'
        check(shape == size, key, found, f'{size}, the size of the image')
        return results


@MODELS.register_module()
class ScaleInvariantLogLoss(nn.Module):
    """The scale-invariant log loss over all valid pixels of a batch.

    ``sqrt(var(d) + 0.15 mean(d)^2)`` with ``d = log(pred + 1e-3) - log(gt + 1e-3)``. In
    the first ``warm_up_iters`` of a run, ``sqrt(0.15 mean(d)^2)`` learns the scale
    before the shape. Pixels with ground truth 0 are invalid. The gradient is zero for a
    batch without valid pixels and for a perfect prediction.
    """

    loss_name = 'loss_depth'

    def __init__(self, warm_up_iters: int = 100, loss_weight: float = 1) -> None:
        super().__init__()
        self.warm_up_iters, self.loss_weight = warm_up_iters, loss_weight

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        """Return the loss between depths in metres, of any shape."""
        valid = target > 0
        if not valid.any():
            return pred.sum() * 0
        # Squares of small differences underflow in half precision.
        pred, target = pred[valid].float(), target[valid].float()
        d = torch.log(pred + EPS) - torch.log(target + EPS)
        square = MEAN_WEIGHT * d.mean().square()
        iteration = MessageHub.get_current_instance().get_info('iter')
        if iteration is None or iteration >= self.warm_up_iters:
            square = square + d.var(correction=int(len(d) > 1))
        return self.loss_weight * square.clamp_min(MIN_SQUARE).sqrt()


def check_depth_range(min_depth: float, max_depth: float) -> tuple[float, float]:
    """Return a range of depths in metres; raise unless it is positive and not empty."""
    depths = min_depth, max_depth
    ok = 0 < min_depth < max_depth
    check(ok, 'min_depth, max_depth', depths, '0 < min_depth < max_depth')
    return depths


@MODELS.register_module()
class DPTDepthHead(DPTHead):
    """mmseg's DPT head with one depth per pixel as output (SN-Netv2, section 5.3).

    Four maps of equal size are combined with their cls tokens, reassembled to four
    sizes and fused from coarse to fine.

    Args:
        post_process_channels: Widths of the four reassembled maps, fine to coarse.
        readout_type: Use of the cls token: ``'ignore'``, ``'add'`` to every patch, or
            ``'project'`` to concatenate it to every patch and project both. All but
            ``'ignore'`` require a backbone with ``with_cls=True``.
        activation: Output activation: ``'sigmoid'`` between both bounds, or ``'relu'``
            above ``min_depth``, as in the authors' models.
        norm_cfg: Normalisation in the fusion blocks. Default: None, as in DPT's depth
            models.
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
        activation: str = 'sigmoid',
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        ok, key = activation in ACTIVATIONS, 'decode_head.activation'
        check(ok, key, activation, ACTIVATIONS)
        self.activation = activation
        super().__init__(
            embed_dims=in_channels,
            post_process_channels=list(post_process_channels),
            readout_type=readout_type,
            norm_cfg=norm_cfg,
            in_channels=[in_channels] * 4,
            in_index=[0, 1, 2, 3],
            input_transform='multiple_select',
            channels=channels,
            # Arguments of segmentation heads: one output, no dropout.
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
        """Return depths ``(B, 1, 2h, 2w)`` in metres from features ``(B, C, h, w)``."""
        depth = self.conv_depth(feat)
        if self.activation == 'relu':
            return self.min_depth + depth.relu()
        return self.min_depth + (self.max_depth - self.min_depth) * depth.sigmoid()

    def loss_by_feat(
        self, depth: Tensor, batch_data_samples: Sequence
    ) -> dict[str, Tensor]:
        truth = torch.stack([x.gt_depth_map.data for x in batch_data_samples])
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


@MODELS.register_module()
class DepthAnythingHead(DPTDepthHead):
    """The DPT head of Depth Anything, of which the cls tokens are no part.

    Unlike DPT's, its fusion blocks have biases and resize to the next map, whatever the
    grid; no projection follows them; and depths have the size of the image's patches.

    Args:
        patch_size: Patch size of the backbone. Default: 14.
        activation: Output activation: ``'sigmoid'`` times ``max_depth``, as in metric
            models, or ``'relu'``, as in those of relative depth.
        **kwargs: See :class:`DPTDepthHead`.
    """

    def __init__(self, in_channels: int, patch_size: int = 14, **kwargs) -> None:
        kwargs = dict(readout_type='ignore', norm_cfg=None) | kwargs
        super().__init__(in_channels, **kwargs)
        self.patch_size, self.project = patch_size, nn.Identity()
        for block in self.fusion_blocks:
            for conv in (m for m in block.modules() if isinstance(m, nn.Conv2d)):
                if conv.bias is None:
                    conv.bias = nn.Parameter(torch.zeros(conv.out_channels))

    def forward(self, inputs: Sequence) -> Tensor:
        """Return depths ``(B, 1, H, W)`` from four maps of equal size, fine first."""
        pairs = self._transform_inputs(inputs)
        size = [n * self.patch_size for n in pairs[0][0].shape[2:]]
        maps = self.reassemble_blocks(pairs)
        maps = [conv(x) for conv, x in zip(self.convs, maps, strict=True)][::-1]
        sizes = [x.shape[2:] for x in maps[1:]]
        sizes.append([2 * n for n in sizes[-1]])
        x, align = maps[0], dict(mode='bilinear', align_corners=True, warning=False)
        for i, block in enumerate(self.fusion_blocks):
            x = x + block.res_conv_unit1(maps[i]) if i else x
            x = resize(block.res_conv_unit2(x), sizes[i], **align)
            x = block.project(x)
        depth = resize(self.conv_depth[0](x), size, **align)
        depth = self.conv_depth[2:](depth)
        if self.activation == 'relu':
            return depth.relu()
        return self.max_depth * depth.sigmoid()


@MODELS.register_module()
class DPTDepthEstimator(DepthEstimator):
    """mmseg's depth estimator with flip testing and a working slide mode.

    ``test_cfg`` contains ``mode``, ``'whole'`` or ``'slide'`` (with ``crop_size`` and
    ``stride``). ``flip`` averages predictions of the image and its mirror image.
    """

    mirrors_images = True  # mmseg mirrors windows, and slides only in 'slide_flip'

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        mode = (self.test_cfg or {}).get('mode')
        check(mode in MODES, 'model.test_cfg.mode', mode, MODES)
        padding = getattr(self.data_preprocessor, 'seg_pad_val', 0)  # mmseg's is 255
        expected = '0, so that padding has no depth'
        check(padding == 0, 'data_preprocessor.seg_pad_val', padding, expected)

    def inference(self, inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
        """Return depths ``(B, 1, H, W)`` in metres from images ``(B, 3, H, W)``."""
        infer = self.whole_inference
        if self.test_cfg['mode'] == 'slide':
            infer = self.slide_inference
        depth = infer(inputs, batch_img_metas)
        if self.test_cfg.get('flip', False):
            mirrored = infer(inputs.flip(3), batch_img_metas)
            depth = (depth + mirrored.flip(3)) / 2
        return depth
