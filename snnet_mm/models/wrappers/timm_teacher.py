"""A classifier of timm as a teacher."""

from __future__ import annotations

from mmengine.model import BaseModel, ImgDataPreprocessor
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.utils.timm_models import create_timm_model


@MODELS.register_module()
class TimmTeacher(BaseModel):
    """A classifier of timm that knows how its images are normalised.

    Args:
        name: Its name in timm; SN-Netv1 has the teacher of DeiT, RegNetY-160.
        pretrained: Whether timm fetches the weights.
        **kwargs: What else ``timm.create_model`` takes, such as ``num_classes``.
    """

    def __init__(
        self, name: str = 'regnety_160', pretrained: bool = True, **kwargs
    ) -> None:
        try:
            model = create_timm_model(name, pretrained=pretrained, **kwargs)
        except ValueError as error:
            raise ValueError(f'{error} (config key: model.teacher)') from error
        mean, std = (
            [255 * x for x in model.pretrained_cfg[key]] for key in ('mean', 'std')
        )
        super().__init__(ImgDataPreprocessor(mean, std, bgr_to_rgb=True))
        self.model = model

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Tensor:
        """Return logits ``(B, K)`` of images ``(B, 3, H, W)``, whatever the mode."""
        return self.model(inputs)
