"""Base class of all wrappers of mm models."""

from functools import cache
from typing import Any

from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.utils import check


class ModelWrapper(BaseModel):
    """An mm model with other training losses; everything else is unchanged.

    A wrapper is the model itself, of a class that inherits from the wrapper's class and
    the model's. So modules, parameters and the state dict keep their names, and model
    and wrapper can load each other's checkpoints. Subclasses override
    :meth:`training_losses`, and set in ``__init__`` what they need, without calling
    that of their base.

    Args:
        model: The mm model, or its config.
        data_preprocessor: Config of the data preprocessor if the model's config has
            none. mmengine's Runner passes the top-level one.
    """

    def __new__(
        cls,
        model: dict | BaseModel | None = None,
        *_: Any,
        data_preprocessor: dict | None = None,
        **__: Any,
    ) -> 'ModelWrapper':
        if model is None:  # copies and pickles set the attributes next
            return super().__new__(cls)
        if isinstance(model, dict):
            if data_preprocessor is not None:
                model = {'data_preprocessor': data_preprocessor, **model}
            model = MODELS.build(model)
        right, kind = isinstance(model, BaseModel), type(model).__name__
        check(right, 'model.model', kind, 'an mm model (BaseModel)')
        model.__class__ = _wrapped_class(cls, type(model))
        return model

    def __init__(
        self, model: dict | BaseModel, data_preprocessor: dict | None = None
    ) -> None:
        """Leave the model as it is."""

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Any:
        if mode == 'loss':
            return self.training_losses(inputs, data_samples)
        return super().forward(inputs, data_samples, mode=mode)

    def training_losses(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of preprocessed images by name."""
        return super().forward(inputs, data_samples, mode='loss')


@cache
def _wrapped_class(wrapper: type, kind: type) -> type:
    return type(wrapper)(wrapper.__name__, (wrapper, kind), {})
