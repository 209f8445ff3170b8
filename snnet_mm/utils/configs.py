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
from mmengine.device import get_device
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmengine.utils import get_installed_path

from snnet_mm.runtime.checks import check, is_whole, refusal

from .files import digest
from .logging import quiet_imports
from .registered_names import name_types

PACKAGE = 'snnet_mm'
# Samplers with known positions in the stream of samples, which seed augmentation.
SEEDED = (
    'DefaultSampler', 'InfiniteSampler', 'ClassAwareSampler', 'MultiDataSampler',
    'RepeatAugSampler',
)  # fmt: skip
# Folders of modules that configs import from beside them; on sys.path since then.
_folders: list[str] = []
SAFE_HOOKS = dict(
    exact_resume='ExactResumeHook',
    training_check='TrainingCheckHook',
    loss_check='LossCheckHook',
)
# Default hooks of mmengine.
STOCK_HOOKS = (
    'runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint'
)  # fmt: skip
# Top-level keys that mmengine or mm's tools read; all others are variables of configs.
READ = {
    *signature(Runner).parameters, 'model_wrapper_cfg', 'sync_bn', 'custom_imports',
    'find_unused_parameters', 'activation_checkpointing', 'efficient_conv_bn_eval',
    'compile', 'runner_type', 'strategy', 'tta_model', 'tta_pipeline', 'weights_origin',
}  # fmt: skip
# mmdet's and mmpretrain's tools average a flip where a config has no tta_model.
DET_NMS = dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100)
TTA_MODELS = dict(
    mmdet=dict(type='DetTTAModel', tta_cfg=DET_NMS),
    mmpretrain=dict(type='AverageClsScoreTTA'),
)
# Constructors of mmseg and mmdet, which know only backbones of mm.
LAYER_DECAYS = (
    'LearningRateDecayOptimizerConstructor', 'LayerDecayOptimizerConstructor'
)  # fmt: skip


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
    """Load or copy a config, and set its work directory, by default after its name."""
    cfg = load_config(config, options)
    name = Path(cfg.filename or 'config').stem
    cfg.work_dir = str(work_dir or cfg.get('work_dir') or f'work_dirs/{name}')
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


def check_hooks(cfg: Config) -> None:
    """Raise for a default hook without a type, such as that of a misspelt name."""
    hooks = cfg.get('default_hooks') or {}
    untyped = {
        name: hook
        for name, hook in hooks.items()
        if hook is None or (isinstance(hook, Mapping) and 'type' not in hook)
    }
    for name, hook in untyped.items():
        known = sorted({*STOCK_HOOKS, *hooks} - (untyped.keys() - {*STOCK_HOOKS}))
        check(name in known, 'default_hooks', name, known)
        expected = 'a dict with a type, or None'
        check(hook is None, f'default_hooks.{name}', hook, expected)


def _path_of(name: str) -> Path:
    package, separator, relative = name.rpartition('::')
    if not separator:
        return Path(name).expanduser()
    try:
        return Path(get_installed_path(package), '.mim', 'configs', relative)
    except Exception:
        raise refusal('config', name, 'a file of an installed package') from None


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


def set_length(
    cfg: Config, iters: int | None = None, epochs: int | None = None
) -> None:
    """Set the length of a training, and scale its schedulers and warm-ups.

    The warm-ups of samplers and losses are scaled, too. A shorter training is not
    validated more often than before.

    Args:
        cfg: Config of the training, changed in place.
        iters: New number of iterations, for a training that counts them.
        epochs: New number of epochs, for a training that counts them.
    """
    loop = cfg.get('train_cfg') or {}
    for unit, new in (('iters', iters), ('epochs', epochs)):
        if new is None:
            continue
        old = loop.get(f'max_{unit}')
        known = [f'--{key[4:]}' for key in loop if key in ('max_iters', 'max_epochs')]
        expected = f'{" or ".join(known) or "no value"}, the unit of train_cfg'
        check(old, f'--{unit}', new, expected)
        check(is_whole(new, 1), f'--{unit}', new, 'a whole number from 1')
        _scale(cfg, old, new)
        loop[f'max_{unit}'] = new
        if (interval := loop.get('val_interval')) is not None:
            loop['val_interval'] = min(new, max(interval, -(-interval * new // old)))


def _scale(cfg: Config, old: int, new: int) -> None:
    """Scale by ``new / old``; milestones and periods round down, all others up."""

    def up(value: float) -> int:
        return -(-value * new // old)

    def acts(part: Mapping) -> bool:
        begin = part.get('begin', 0)
        # A warm-up of one step would never leave its start factor.
        warms_up = begin == 0 and not part.get('convert_to_iter_based')
        return part.get('end', new) - begin > warms_up

    schedules = cfg.get('param_scheduler') or []
    for part in dicts_in(schedules):
        begin = part.get('begin', 0)
        if part.get('T_max') is not None:
            part['T_max'] = max(1, up(begin + part['T_max']) - up(begin))
        for name in {'begin', 'end', 'step_size'} & part.keys():
            part[name] = up(part[name])
        for name in {'milestones', 'periods'} & part.keys():
            part[name] = [max(1, value * new // old) for value in part[name]]
    if isinstance(schedules, list):  # a single scheduler stays
        cfg.param_scheduler = [*filter(acts, schedules)]
    for name in ('model', 'default_hooks', 'custom_hooks'):
        for part in dicts_in(cfg.get(name)):
            for setting in {'warm_up', 'warm_up_iters'} & part.keys():
                part[setting] = up(part[setting])


def set_resume(
    cfg: Config, asked: bool | None, options: Mapping[str, Any] | None = None
) -> None:
    """Make a training resume if ``asked``, or for None if its config says so.

    A checkpoint of the config only initialises the first run, so a requested
    resumption continues from the latest checkpoint in the work directory, if there is
    one. ``options`` are the overridden settings: a ``load_from`` among them is kept.
    """
    resumes, named = cfg.get('resume', False), 'load_from' in (options or {})
    cfg.resume = resumes if asked is None else asked
    if asked and not resumes and cfg.get('load_from') and not named:
        cfg.resume = Path(cfg.work_dir, 'last_checkpoint').exists()
        cfg.load_from = None if cfg.resume else cfg.load_from


def make_safe(cfg: Config) -> list[str]:
    """Replace mm's stock hooks in a config with the project's safe hooks.

    Checkpoints are then written atomically, labels are checked, and a diverging
    training stops. Resuming is exact: samples are seeded by their position in the
    stream, and the run by a fixed seed. Returns what was added.
    """
    hooks, done = dict(cfg.get('default_hooks') or {}), []
    present = {*map(step_name, (*hooks.values(), *(cfg.get('custom_hooks') or [])))}
    # mmengine's default for a missing key; None disables the hook.
    checkpoint = hooks.get('checkpoint', dict(type='CheckpointHook', interval=1))
    if checkpoint and step_name(checkpoint) == 'CheckpointHook':
        safe = dict(type='StitchCheckpointHook')
        hooks['checkpoint'] = dict(interval=-1) | dict(checkpoint) | safe
        done.append('StitchCheckpointHook')
    for key, kind in SAFE_HOOKS.items():
        if kind not in present:
            hooks[key] = dict(type=kind)
            done += [kind, *(_seed(cfg) if key == 'exact_resume' else ())]
    cfg.default_hooks = hooks
    return done


def _seed(cfg: Config) -> Iterator[str]:
    """Seed the samples, if the sampler is in ``SEEDED``, and the run."""
    loader = cfg.get('train_dataloader') or {}
    data, sampler = loader.get('dataset'), loader.get('sampler')
    seeded = step_name(data) == 'SeededDataset'
    if sampler and step_name(sampler) in SEEDED and not seeded:
        loader['dataset'] = dict(data, type='SeededDataset', of=data['type'])
        loader['sampler'] = dict(sampler, type='SeededSampler', of=sampler['type'])
        yield 'SeededDataset and SeededSampler'
    randomness = cfg.get('randomness') or {}
    if randomness.get('seed') is None:
        cfg.randomness = dict(randomness, seed=0)
        yield 'randomness.seed=0'


def train_in_half_precision(cfg: Config, asked: bool = True) -> None:
    """Make a config train in mixed precision: bfloat16 on a CPU, mm's AMP elsewhere.

    Unless ``asked`` by ``--amp``, only an ``AmpOptimWrapper`` on a CPU is replaced; for
    detectors, whose NMS does not support bfloat16 there, by training in float32.
    """
    wrapper, on_cpu = cfg.get('optim_wrapper') or {}, get_device() == 'cpu'
    if not asked and not (on_cpu and step_name(wrapper) == 'AmpOptimWrapper'):
        return
    if not on_cpu:
        wrapper.type = 'AmpOptimWrapper'
        wrapper.setdefault('loss_scale', 'dynamic')
        return
    detects = cfg.get('default_scope') == 'mmdet'
    expected = "no value for mmdet on a CPU: mmcv's NMS does not support bfloat16 there"
    check(not (asked and detects), '--amp', asked, expected)
    if not asked:
        dtype = 'float32' if detects else 'bfloat16'
        print(f'AmpOptimWrapper needs an accelerator: training in {dtype} on the CPU.')
    wrapper.type = 'OptimWrapper' if detects else 'BF16OptimWrapper'
    for key in ('loss_scale', 'dtype', 'use_fsdp'):  # arguments of AmpOptimWrapper
        wrapper.pop(key, None)


def set_test(cfg: Config, **settings: Any) -> None:
    """Test stitches with settings of :class:`StitchTestLoop`; None skips a setting."""
    settings = {key: value for key, value in settings.items() if value is not None}
    if settings and not tests_stitches(cfg):
        cfg.test_cfg = dict(cfg.get('test_cfg') or {}, type='StitchTestLoop')
    cfg.test_cfg.update(settings)


def tests_stitches(cfg: Config) -> bool:
    """Return whether a config tests stitches."""
    # mmpretrain's own configs have test_cfg=dict().
    return cfg.test_cfg.get('type') == 'StitchTestLoop'


def set_visualization(cfg: Config, folder: str) -> None:
    """Save drawn predictions in a folder, by the stitch test loop or mm's hook."""
    if tests_stitches(cfg):
        cfg.test_cfg.show_dir = folder
        return
    hook = cfg.get('default_hooks', {}).get('visualization')
    check(hook, 'default_hooks.visualization', hook, 'a hook, for --show-dir')
    if cfg.get('default_scope') == 'mmpretrain':
        hook.enable, hook.out_dir = True, folder
    else:
        hook.draw, cfg.visualizer.save_dir = True, folder


def set_augmentation(cfg: Config) -> None:
    """Enable test-time augmentation, which averages predictions.

    Without a setting of their own, detectors and classifiers average a flip, as in the
    tools of mmdet and mmpretrain.
    """
    parts = innermost_parts(cfg.test_dataloader.dataset)
    scope = cfg.get('default_scope')
    if scope in TTA_MODELS:
        cfg.setdefault('tta_model', TTA_MODELS[scope])
        *steps, pack = deepcopy(parts[0].pipeline)
        if 'meta_keys' in pack:  # boxes are flipped back
            pack.meta_keys = (*pack.meta_keys, 'flip', 'flip_direction')
        flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
        step = dict(type='TestTimeAug', transforms=[flips, [pack]])
        cfg.setdefault('tta_pipeline', [*steps, step])
    for key in ('tta_model', 'tta_pipeline'):
        check(cfg.get(key), key, cfg.get(key), f'a {key}, which --tta needs')
    for part in parts:
        part.pipeline = cfg.tta_pipeline
    cfg.tta_model.module = cfg.model
    cfg.model = cfg.tta_model


def decay_anchors(cfg: Config) -> bool:
    """Replace mm's layer-wise decay by ours if the backbone is one of ours.

    Returns whether it did. mmpretrain's own decay asks the backbone.
    """
    backbone = model_config(cfg).get('backbone')
    wrapper = cfg.get('optim_wrapper') or {}
    if wrapper.get('constructor') not in LAYER_DECAYS or not backbone:
        return False
    kind = MODELS.get(step_name(backbone))
    changes = layer_decay(wrapper)
    if not changes or not ('anchors' in backbone or hasattr(kind, 'layer_depth')):
        return False
    cfg.merge_from_dict(dict(optim_wrapper=changes))
    return True


def layer_decay(optim_wrapper: Mapping) -> dict:
    """Return changes that replace mm's layer-wise decay by ours; none without decay.

    mm's constructors know only the backbones of mm.
    """
    paramwise = optim_wrapper.get('paramwise_cfg') or {}
    rate = paramwise.get('decay_rate', paramwise.get('layer_decay_rate'))
    if rate is None:
        return {}
    rates = dict(_delete_=True, decay_rates=rate)
    if paramwise.get('decay_type') == 'stage_wise':
        rates['num_layers'] = paramwise['num_layers']
    return dict(constructor='AnchorLayerDecayConstructor', paramwise_cfg=rates)
