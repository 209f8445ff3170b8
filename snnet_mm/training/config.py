"""Edits of configs for trainings and tests, by the options of tools."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import MODELS

from snnet_mm.utils import check, dicts_in, is_whole, model_config
from snnet_mm.utils.configs import innermost_parts, step_name

# Samplers with known positions in the stream of samples, which seed augmentation.
SEEDED = (
    'DefaultSampler', 'InfiniteSampler', 'ClassAwareSampler', 'MultiDataSampler',
    'RepeatAugSampler',
)  # fmt: skip
SAFE_HOOKS = dict(
    exact_resume='ExactResumeHook',
    training_check='TrainingCheckHook',
    loss_check='LossCheckHook',
)
# Default hooks of mmengine.
STOCK_HOOKS = (
    'runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint'
)  # fmt: skip
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
