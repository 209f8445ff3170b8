"""The depth estimator."""

from mmseg.models import DepthEstimator
from mmseg.registry import MODELS
from torch import Tensor

from snnet_mm.utils import check, register

MODES = ('whole', 'slide')


@register(MODELS)
class DPTDepthEstimator(DepthEstimator):
    """mmseg's depth estimator with a flip test, and a slide mode that slides.

    ``test_cfg`` holds ``mode``, ``'whole'`` or ``'slide'`` (with ``crop_size`` and
    ``stride``), and ``flip``, whether the mean with the prediction of the mirrored
    image is taken. There mmseg's own estimator has ``'slide_flip'`` only, and runs
    ``'whole'`` where ``'slide'`` is asked for.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        mode = (self.test_cfg or {}).get('mode')
        check(mode in MODES, 'model.test_cfg.mode', mode, MODES)

    def inference(self, inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
        """Return depths ``(B, 1, H, W)`` in metres of images ``(B, 3, H, W)``."""
        infer = self.whole_inference
        if self.test_cfg['mode'] == 'slide':
            infer = self.slide_inference
        depth = infer(inputs, batch_img_metas)
        if self.test_cfg.get('flip', False):
            mirrored = infer(inputs.flip(3), batch_img_metas)
            depth = (depth + mirrored.flip(3)) / 2
        return depth
