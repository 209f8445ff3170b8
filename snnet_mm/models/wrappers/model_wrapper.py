"""Base class of all wrappers of mm models."""

from collections.abc import Iterator
from typing import Any

from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check


class ModelWrapper(BaseModel):
    """An mm model with an overridden ``loss``; everything else is unchanged.

    The model is a child, ``wrapped``, which appears in no name: modules, parameters and
    the state dict keep the model's names. Model and wrapper can load each other's
    checkpoints.

    Args:
        model: The mm model, or its config.
        data_preprocessor: Config of the data preprocessor if the model's config has
            none. mmengine's Runner passes the top-level one.
    """

    def __init__(
        self, model: dict | BaseModel, data_preprocessor: dict | None = None
    ) -> None:
        super().__init__()
        del self.data_preprocessor  # the model's is read instead
        if isinstance(model, dict) and data_preprocessor is not None:
            model = {'data_preprocessor': data_preprocessor, **model}
        model = MODELS.build(model) if isinstance(model, dict) else model
        right, kind = isinstance(model, BaseModel), type(model).__name__
        check(right, 'model.model', kind, 'an mm model (BaseModel)')
        self.wrapped = model
        self.register_state_dict_post_hook(_name_as_in_model)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == 'wrapped':  # not set yet while copying
                raise
            return getattr(self.wrapped, name)

    def named_modules(
        self, memo: set | None = None, prefix: str = '', remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield all modules under their names in the model."""
        dot = f'{prefix}.' if prefix else ''
        for name, module in super().named_modules(memo, prefix, remove_duplicate):
            if f'{name}.'.startswith(inner := f'{dot}wrapped.'):
                name = (dot + f'{name}.'.removeprefix(inner)).rstrip('.')
            yield name, module

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args) -> None:
        """Rename the weights for the child ``wrapped``, which loads them next."""
        versions = getattr(state_dict, '_metadata', None) or {}
        versions |= {f'wrapped.{k}'.rstrip('.'): v for k, v in versions.items()}
        for key in [k for k in state_dict if k.startswith(prefix)]:
            name = f'{prefix}wrapped.{key.removeprefix(prefix)}'
            state_dict[name] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Any:
        if mode == 'loss':
            return self.loss(inputs, data_samples)
        return self.wrapped(inputs, data_samples, mode=mode)

    def parse_losses(self, losses: dict) -> tuple[Tensor, dict]:
        return self.wrapped.parse_losses(losses)

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of preprocessed images by name."""
        return self.wrapped(inputs, data_samples, mode='loss')


def _name_as_in_model(
    wrapper: ModelWrapper, state_dict: dict, prefix: str, *_: Any
) -> None:
    """Remove the child's name from the keys of its weights and their versions."""
    inner = f'{prefix}wrapped.'
    for key in [k for k in state_dict if k.startswith(inner)]:
        state_dict[prefix + key.removeprefix(inner)] = state_dict.pop(key)
    versions = state_dict._metadata
    for key in [k for k in versions if f'{k}.'.startswith(inner)]:
        name = prefix + f'{key}.'.removeprefix(inner)
        versions[name.rstrip('.')] = versions.pop(key)
