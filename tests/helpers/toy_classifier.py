import torch.nn.functional as F
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import nn


@MODELS.register_module()
class ToyClassifier(BaseModel):
    """A classifier of the last map of a backbone, or of the images themselves."""

    def __init__(self, backbone=None, channels=12, num_classes=5, dropout=0, **kwargs):
        super().__init__(**kwargs)
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(channels, num_classes), nn.Dropout(dropout))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        maps = self.backbone(inputs)[-1] if self.backbone else inputs
        logits = self.head(maps.mean((2, 3)))
        if mode == 'loss':
            right = (logits.argmax(1) == data_samples).float().mean()
            return dict(loss_cls=F.cross_entropy(logits, data_samples), accuracy=right)
        return logits.argmax(1) if mode == 'predict' else logits
