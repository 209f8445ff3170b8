"""Arguments that functions of timm set themselves.

Functions such as ``convmixer_768_32`` call ``dict(dim=768, **kwargs)``, so ``dim``
cannot be given. A copy of the function calls ``_create_convmixer`` with the given
arguments. Written for timm 1.0, tested with 1.0.31. If timm accepts such arguments
itself, call ``timm.create_model`` instead; if it names its creators otherwise, its own
error is raised.
"""

from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from torch import nn


def create_with(timm: ModuleType, name: str, given: Mapping[str, Any]) -> nn.Module:
    """Create a model with any arguments of its constructor."""
    try:
        return timm.create_model(name, **given)
    except TypeError as error:
        if 'multiple values for keyword' not in str(error):
            raise
        name, _, tag = name.partition('.')
        function = timm.models.model_entrypoint(name)
        names = function.__code__.co_names
        creator = next((n for n in names if n.startswith('_create')), None)
        if creator is None:
            raise

    def create(variant: str, pretrained: bool, **kwargs) -> nn.Module:
        arguments = dict(kwargs, pretrained=pretrained) | given
        return function.__globals__[creator](variant, **arguments)

    copy = FunctionType(function.__code__, function.__globals__ | {creator: create})
    return copy(False, pretrained_cfg=tag or None)
