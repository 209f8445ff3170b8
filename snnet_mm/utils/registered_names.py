"""Types of mmengine's new-style configs, as the registered names of old-style ones.

New-style configs import the classes that they name, need no ``default_scope``, and are
dumped with import paths. Everything else in this package reads registered names.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mmengine import registry as mmengine_registries
from mmengine.config import Config
from mmengine.config.lazy import LazyAttr, LazyObject
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.registry import MODELS, Registry
from mmengine.utils import get_object_from_string

from snnet_mm.runtime.checks import check

ROOT = MODELS.scope
LAZY = LazyObject, LazyAttr
NODES = Mapping, list, tuple
# mm packages may not be imported yet.
SCOPES = {ROOT, *MODULE2PACKAGE}
# Keys whose value is built by a registry, or is its name.
TYPE_KEYS = 'type', 'of', 'constructor', 'runner_type'
# mmcv evaluates the names of these functions, which no registry holds.
EVALUATED = 'mmcv.ops.nms'


def name_types(cfg: Config) -> Config:
    """Return a config whose types are registered names, in its default scope.

    Without a ``default_scope``, it becomes that of the mm package of the model.
    Classes that are in no registry keep their import path. Classes at other keys, such
    as ``norm_layer``, stay; see :func:`check_named`.
    """
    kept = cfg.to_dict().keys()  # without what the file imports
    given = {k: v for k, v in dict.items(cfg._cfg_dict) if k in kept}
    found = _map_types(given, _object_of)
    scope = cfg.get('default_scope') or _scope_of_model(found.get('model'))
    named = _map_types(found, lambda kind: _name_of(kind, scope or ROOT))
    if scope is not None or 'default_scope' in given:
        named['default_scope'] = scope or ROOT
    if named == given:
        return cfg
    return Config(named, cfg_text=cfg.text, filename=cfg.filename)


def check_named(cfg: Config) -> None:
    """Raise if a setting is a class outside of ``type``, which no file can hold."""

    def look(node: Any, path: str) -> None:
        if isinstance(node, LAZY):
            name = f'{node.module}.{node}' if isinstance(node, LazyObject) else node
            expected = 'a value that a config in text can hold, not a class'
            check(False, path.removeprefix('.'), name, expected)
        children = enumerate(node) if isinstance(node, list | tuple) else ()
        children = dict.items(node) if isinstance(node, Mapping) else children
        for key, child in children:
            look(child, f'{path}.{key}')

    look(cfg._cfg_dict, '')


def _map_types(node: Any, change: Callable[[Any], Any], top: bool = True) -> Any:
    """Return a copy of a config with changed types and variables that hold types."""
    if isinstance(node, Mapping):
        return {
            key: change(value)
            if (key in TYPE_KEYS and not isinstance(value, NODES))
            or (top and _is_class(value))
            else _map_types(value, change, False)
            for key, value in dict.items(node)
        }
    if isinstance(node, list | tuple):
        return type(node)(_map_types(child, change, False) for child in node)
    return node


def _is_class(value: Any) -> bool:
    return callable(value) and not isinstance(value, Mapping)


def _object_of(kind: Any) -> Any:
    """Return the class or function of a type; registered names stay."""
    if isinstance(kind, LAZY):
        return kind.build()
    if not isinstance(kind, str) or '.' not in kind:
        return kind
    scope, _, name = kind.partition('.')
    if '.' not in name and scope in SCOPES | MODELS.children.keys():
        return kind
    try:
        found = get_object_from_string(kind)
    except (ImportError, ValueError, AttributeError):
        return kind
    return found if _is_class(found) else kind


def _name_of(kind: Any, scope: str) -> Any:
    """Return the name of a class or function, as a config with a default scope has it.

    The scope is added where its package has another class of this name.
    """
    if not _is_class(kind):
        return kind
    for root in vars(mmengine_registries).values():
        if not isinstance(root, Registry):
            continue
        for child in (root.children.get(scope), root, *root.children.values()):
            for name in _names_in(child, kind):
                inner = root.children.get(scope, root)
                inner.import_from_location()
                near = inner.module_dict.get(name, root.module_dict.get(name))
                return name if near is kind else f'{child.scope}.{name}'
    if kind.__module__ == EVALUATED:
        return kind.__name__
    return f'{kind.__module__}.{kind.__qualname__}'


def _names_in(registry: Registry | None, kind: Any) -> list[str]:
    """Return the names of a class in a registry, its own name first."""
    found = registry.module_dict if registry is not None else {}
    names = [name for name, value in found.items() if value is kind]
    return sorted(names, key=lambda name: name != kind.__name__)


def _scope_of_model(model: Any) -> str | None:
    """Return the scope of the package of a model, without training wrappers."""
    while isinstance(model, Mapping) and isinstance(model.get('model'), Mapping):
        model = model['model']
    kind = model.get('type') if isinstance(model, Mapping) else None
    if isinstance(kind, str):
        scope = kind.partition('.')[0]
        return scope if scope in SCOPES | MODELS.children.keys() else None
    packages = [b.__module__.partition('.')[0] for b in getattr(kind, '__mro__', ())]
    return next((name for name in packages if name in MODULE2PACKAGE), None)
