"""Configs: loaded by path or name, and adapted to the options of tools."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner
from mmengine.utils import get_installed_path

from snnet_mm.runtime.checks import check, refusal

from .files import digest
from .logging import quiet_imports
from .registered_names import name_types

PACKAGE = 'snnet_mm'
# Folders of modules that configs import from beside them; on sys.path since then.
_folders: list[str] = []
# Top-level keys that mmengine or mm's tools read; all others are variables of configs.
READ = {
    *signature(Runner).parameters, 'model_wrapper_cfg', 'sync_bn', 'custom_imports',
    'find_unused_parameters', 'activation_checkpointing', 'efficient_conv_bn_eval',
    'compile', 'runner_type', 'strategy', 'tta_model', 'tta_pipeline', 'weights_origin',
}  # fmt: skip


def load_config(
    config: str | os.PathLike | Config, options: Mapping[str, Any] | None = None
) -> Config:
    """Load or copy a config, and override settings, given as ``'a.b'`` to value.

    A file is given by its path, or by its name in an installed package, such as
    ``'snnet_mm::camvid/setr-naive_vit-fast_1xb8-1500_camvid-240x176.py'``. New-style
    configs are converted by :func:`name_types`. Modules of ``custom_imports`` are also
    found in the folder of the config and in the current folder.
    """
    if isinstance(config, Config):
        merge_options(cfg := name_types(deepcopy(config)), options or {})
        return cfg
    import_module(f'{PACKAGE}.register')  # registers our types in any import order
    # Many configs of mmseg import mmdet, which needs operators.
    import_module('.torchvision_ops', __package__).install()  # slow to import
    path = _path_of(str(config))
    try:
        with quiet_imports(), _importable(path.resolve().parent, Path.cwd()):
            cfg = name_types(Config.fromfile(path))
    except ImportError:
        raise  # from custom_imports; its message names the missing module
    except Exception as error:
        raise ValueError(
            f'config {path} cannot be read: {type(error).__name__}: {error} (argument: '
            'config)'
        ) from error
    merge_options(cfg, options or {})
    import_module(f'{PACKAGE}.tasks').import_parts_for(cfg)
    for part in dicts_in(cfg._cfg_dict):
        part.update(drawable(part))
    for part in dicts_in(cfg.get('model')):
        inner = part.get('backbone')
        if part.get('pretrained') and isinstance(inner, Mapping):
            own = inner.get('pretrained') or 'anchors' in inner
            expected = 'None: mmseg would pass it on to the backbone, whose weights '
            expected += 'are set by init_cfg of each anchor, or backbone.pretrained'
            check(not own, 'model.pretrained', part.pretrained, expected)
        nested = part.get('backbone_cfg')
        if isinstance(nested, Mapping) and 'anchors' in nested:
            expected = f'a plain network, as {part.get("type")} builds its own '
            expected += 'one around it; a stitched backbone belongs at model.backbone'
            raise refusal('backbone.backbone_cfg.type', nested.get('type'), expected)
    return cfg


@contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    """Find modules in folders, after all others; keep folders that any was found in."""
    added = [f for f in dict.fromkeys(map(str, folders)) if f not in sys.path]
    before = {*sys.modules}
    sys.path += added
    try:
        yield
    finally:
        found = [_folder_of(name) for name in sys.modules.keys() - before]
        for folder in added:
            (_folders.append if folder in found else sys.path.remove)(folder)


def _folder_of(name: str) -> str | None:
    """Return the folder in which the import of a module looks for it, if any does."""
    module = sys.modules.get(name.partition('.')[0])
    places = getattr(module, '__path__', None) or [getattr(module, '__file__', None)]
    return str(Path(next(iter(places)) or '').parent)


def write_config(cfg: Config, path: str | os.PathLike, head: str = '') -> None:
    """Write a config, which finds the modules that it imports from beside another."""
    imports = (cfg.get('custom_imports') or {}).get('imports') or ()
    names = [imports] if isinstance(imports, str) else imports
    found = dict.fromkeys(f for f in map(_folder_of, names) if f in _folders)
    lines = [f"__import__('sys').path.append({folder!r})\n" for folder in found]
    Path(path).write_text(head + ''.join(lines) + cfg.pretty_text)


def drawable(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the palette of a data set's metainfo with colours as tuples, if any.

    mm's visualizers take a colour in a list for a list of colours.
    """
    palette = meta.get('palette')
    if not isinstance(palette, list | tuple):  # mmdet allows words such as 'random'
        return {}
    return dict(palette=[tuple(c) if isinstance(c, list) else c for c in palette])


def runner_config(
    config: str | os.PathLike | Config,
    work_dir: str | os.PathLike | None = None,
    options: Mapping[str, Any] | None = None,
) -> Config:
    """Load or copy a config, and set its work directory, by default after its name.

    That of ``elastic.py`` is ``test`` beside it: all elastic models have this name.
    """
    cfg = load_config(config, options)
    path = Path(cfg.filename or 'config')
    elastic = path.name == 'elastic.py' and path.with_suffix('.pth').is_file()
    default = path.with_name('test') if elastic else Path('work_dirs', path.stem)
    cfg.work_dir = str(work_dir or cfg.get('work_dir') or default)
    return cfg


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Override settings of a config, given as ``'a.b'`` to value.

    mmengine has put variables of config files, such as ``data_root``, into the keys
    that use them: to override those, name the keys.
    """
    for name in sorted({key.partition('.')[0] for key in options} - READ):
        meant = _meant(name)
        expected = f'{meant}, or a variable of the config'
        check(name in cfg or not meant, '--cfg-options', name, expected)
        if not meant:
            print(f'--cfg-options {name}: a variable of configs, which nothing reads.')
    try:
        cfg.merge_from_dict(dict(options))
    except Exception as error:
        expected = f'settings of {cfg.filename} ({error})'
        raise refusal('--cfg-options', options, expected) from error


def misspelt_keys(cfg: Config) -> Iterator[str]:
    """Yield a warning for every top-level key that is almost one that mmengine reads.

    Other keys are variables of config files.
    """
    for key in sorted(cfg.keys() - READ):
        if meant := _meant(key):
            yield f'Nothing reads {key}: did you mean {meant}? (config key: {key})'


def _meant(key: str) -> str | None:
    # No variable of mm's own configs is this close, except to these two.
    known = sorted(READ - {'model', 'tta_pipeline'})
    return next(iter(get_close_matches(key, known, 1, cutoff=0.88)), None)


def _path_of(name: str) -> Path:
    package, separator, relative = name.rpartition('::')
    if not separator:
        return Path(name).expanduser()
    try:
        return Path(get_installed_path(package), '.mim', 'configs', relative)
    except Exception:
        raise refusal(
            'argument: config', name, 'a file of an installed package'
        ) from None


def dicts_in(node: Any) -> Iterator[dict]:
    """Yield every dict in a config, at any depth."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list | tuple):
        for child in node:
            yield from dicts_in(child)


def model_config(cfg: Config) -> dict:
    """Return the config of the mm model that mmengine's Runner builds from a config.

    A top-level ``data_preprocessor`` applies to a model without its own. Wrappers, such
    as :class:`~snnet_mm.models.SandwichWrapper` and those of test-time augmentation,
    are removed.
    """
    model = cfg.model
    while isinstance(inner := model.get('model') or model.get('module'), Mapping):
        model = inner
    model = deepcopy(model)
    if cfg.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', deepcopy(cfg.data_preprocessor))
    return model


def innermost_parts(dataset: ConfigDict) -> list[ConfigDict]:
    """Unwrap the config of a data set down to all that have a pipeline."""
    if 'pipeline' in dataset:
        return [dataset]
    inner = dataset.get('datasets') or [dataset.dataset]
    return [part for each in inner for part in innermost_parts(each)]


def innermost(dataset: ConfigDict) -> ConfigDict:
    """Unwrap the config of a data set down to the first that has a pipeline."""
    return innermost_parts(dataset)[0]


def inference_pipeline(cfg: Config) -> list[dict]:
    """Return the test pipeline without annotations, starting from image files."""
    loaders, steps = [], []
    for step in deepcopy(innermost(cfg.test_dataloader.dataset).pipeline):
        kind = step_name(step)
        if not kind.startswith('Load'):
            steps.append(step)
        elif 'Annotation' not in kind and 'Proposals' not in kind:
            loaders.append(step)
    # Loaders of images from other formats, such as LoadSingleRSImageFromFile.
    usual = (step for step in loaders if step_name(step).startswith('LoadImage'))
    default = next(iter(loaders), dict(type='LoadImageFromFile'))
    return [next(usual, default), *steps]


def digest_of_settings(cfg: Config) -> str:
    """Return a digest of the settings that decide predictions, other than weights."""
    settings = cfg.model, cfg.get('data_preprocessor'), inference_pipeline(cfg)
    return digest([json.dumps(settings, default=str, sort_keys=True)])


def step_name(part: object) -> str:
    """Return the class name of a step of a pipeline, or of any part, built or not."""
    kind = part.get('type') if isinstance(part, Mapping) else type(part)
    return str(getattr(kind, '__name__', kind)).rpartition('.')[2]


def takes_rgb(cfg: Config) -> bool:
    """Return whether a model converts loaded BGR images to RGB."""
    preprocessor = model_config(cfg).get('data_preprocessor') or {}
    keys = 'bgr_to_rgb', 'rgb_to_bgr', 'to_rgb'  # the first two both swap channels
    return any(preprocessor.get(key) for key in keys)
