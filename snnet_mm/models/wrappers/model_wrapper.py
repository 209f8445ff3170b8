"""What every wrapper of an mm model shares with the model that it wraps."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor


class ModelWrapper(BaseModel):
    """An mm model with another ``loss``; all else is that of the model.

    A wrapper and its model have one and the same parts, not one inside the other. So
    parameters, the state dict and the settings that go by names have the names of the
    model, and a checkpoint of the one is a checkpoint of the other.

    Args:
        model: The mm model, or its config.
        data_preprocessor: Config of the data preprocessor of a model given as a config
            without one; mmengine's Runner passes on the one at a config's top level.

    Raises:
        ValueError: If it is no mm model.
    """

    def __init__(
        self, model: dict | BaseModel, data_preprocessor: dict | None = None
    ) -> None:
        if isinstance(model, dict) and data_preprocessor is not None:
            model = {'data_preprocessor': data_preprocessor, **model}
        model = MODELS.build(model) if isinstance(model, dict) else model
        if not isinstance(model, BaseModel):
            raise ValueError(
                f'{type(model).__name__} cannot be wrapped; allowed are mm models, '
                "such as type='ImageClassifier' (config key: model.model)"
            )
        # In a tuple, which hides it; training() below needs it from the beginning.
        self.__dict__['_wrapped'] = (model,)
        super().__init__(model.data_preprocessor)
        self._modules, self._parameters = model._modules, model._parameters
        self._buffers = model._buffers
        self._non_persistent_buffers_set = model._non_persistent_buffers_set

    @property
    def wrapped(self) -> BaseModel:
        """The model."""
        return self.__dict__['_wrapped'][0]

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self.wrapped.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.wrapped.training = mode

    def __getattr__(self, name: str) -> Any:
        """What the wrapper lacks is asked of the model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if '_wrapped' not in self.__dict__:  # as while it is copied
                raise
            return getattr(self.wrapped, name)

    def init_weights(self) -> None:
        """Initialise the model."""
        self.wrapped.init_weights()

    def train(self, mode: bool = True) -> ModelWrapper:
        """Set the mode of the model."""
        self.wrapped.train(mode)
        return self

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Any:
        """What the model gives; with ``mode='loss'`` what :meth:`loss` does.

        Args:
            inputs: Preprocessed images ``(B, 3, H, W)``.
            data_samples: The data samples of these images.
            mode: ``'loss'``, ``'predict'`` or ``'tensor'``.
        """
        if mode == 'loss':
            return self.loss(inputs, data_samples)
        return self.wrapped(inputs, data_samples, mode=mode)

    def val_step(self, data: dict | tuple | list) -> list:
        """Predictions of the model."""
        return self.wrapped.val_step(data)

    def test_step(self, data: dict | tuple | list) -> list:
        """Predictions of the model."""
        return self.wrapped.test_step(data)

    def parse_losses(self, losses: dict) -> tuple[Tensor, dict]:
        """The sum of all losses, and what is logged of them."""
        return self.wrapped.parse_losses(losses)

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Losses of preprocessed images by name."""
        return self.wrapped(inputs, data_samples, mode='loss')


def unwrapped_config(model: dict) -> dict:
    """Config of the mm model inside any wrappers: what predicts and is shipped."""
    while _is_wrapper(model['type']):
        model = model['model']
    return model


def model_config(cfg: Config) -> dict:
    """Return the config of the mm model that mmengine's Runner builds of a config.

    A ``data_preprocessor`` at the top level belongs to the model, unless that has one
    of its own. Wrappers are left out, see :func:`unwrapped_config`.
    """
    model = deepcopy(unwrapped_config(cfg.model))
    if cfg.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', deepcopy(cfg.data_preprocessor))
    return model


def _is_wrapper(kind: str | type) -> bool:
    kind = MODELS.module_dict.get(kind) if isinstance(kind, str) else kind
    return isinstance(kind, type) and issubclass(kind, ModelWrapper)
