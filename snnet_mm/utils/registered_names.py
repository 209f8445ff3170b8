"""Types of mmengine's new-style configs, as the registered names of old-style ones.

New-style configs name classes and functions, which they import, and need no
``default_scope``. Everything else in this package reads registered names.
"""

from collections.abc import Mapping
from typing import Any

from mmengine import registry as mmengine_registries
from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.registry import Registry

from snnet_mm.runtime.checks import refusal

# Keys whose value is built by a registry, or is its name.
TYPE_KEYS = 'type', 'of', 'constructor', 'runner_type'


def name_types(cfg: Config) -> Config:
    """Return a config whose types are registered names, with their scopes.

    Without a ``default_scope``, it becomes that of the mm package of the model.
    Classes in no registry become import paths. Those at other keys, such as
    ``norm_layer``, stay; see :func:`check_named`.
    """
    given = {key: cfg[key] for key in cfg.to_dict()}  # without what the file imports
    named = _with_names(given)
    model = named.get('model') or {}
    while isinstance(model.get('model'), Mapping):  # training wrappers
        model = model['model']
    scope = str(model.get('type')).partition('.')[0]
    if cfg.get('default_scope') is None and scope in MODULE2PACKAGE:
        named['default_scope'] = scope
    if named == given:
        return cfg
    return Config(named, cfg_text=cfg.text, filename=cfg.filename)


def check_named(node: Any, path: str = '') -> None:
    """Raise if a setting is a class or function, which no file can hold."""
    # The file may import classes at the top, and types become names.
    inside, _, key = path.rpartition('.')
    if callable(node) and inside and key not in TYPE_KEYS:
        name = f'{node.__module__}.{node.__qualname__}'
        raise refusal(path, name, 'a value that a config in text can hold, not a class')
    if isinstance(node, Mapping | Config):
        items = node.items()
    else:
        items = enumerate(node) if isinstance(node, list | tuple) else ()
    for key, child in items:
        check_named(child, f'{path}.{key}'.removeprefix('.'))


def _with_names(node: Any, key: str = '') -> Any:
    if isinstance(node, Mapping):
        return {key: _with_names(value, key) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_with_names(child) for child in node)
    return _name_of(node) if key in TYPE_KEYS and callable(node) else node


def _name_of(kind: Any) -> Any:
    """Return the name of a class or function in its registry, with the scope."""
    for root in vars(mmengine_registries).values():
        if isinstance(root, Registry):
            for registry in (root, *root.children.values()):
                for name, value in registry.module_dict.items():
                    if value is kind:
                        return f'{registry.scope}.{name}'
    if kind.__module__ == 'mmcv.ops.nms':  # mmcv evaluates the names of its functions
        return kind.__name__
    return f'{kind.__module__}.{kind.__qualname__}'
