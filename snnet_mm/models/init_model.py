"""A trained model, ready to predict with any of its stitches."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import print_log
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import nn

from snnet_mm.tasks import import_parts_for
from snnet_mm.utils import (
    check,
    load_config,
    load_fitting,
    load_weights_only,
    model_config,
    refusal,
)
from snnet_mm.utils.checkpoints import weights_of
from snnet_mm.utils.configs import drawable

from .backbones.stitched_backbone import StitchedBackbone
from .layers.stitch_batch_norm import convert_batch_norms
from .stitch_switch import set_stitch


def init_model(
    config: str | os.PathLike | Config,
    checkpoint: str | os.PathLike | None,
    stitch: int | None = None,
    device: str | torch.device | None = None,
    loaded: Mapping | None = None,
) -> nn.Module:
    """Build the model of a config in eval mode, with the weights of a checkpoint.

    The checkpoint is deserialised as data, so no code in it can run. The config is
    ``model.cfg``, the classes and colours are in ``model.dataset_meta``. Batch norms
    use the checkpoint's statistics for each stitch, unless
    ``default_hooks.stitch_statistics.num_images`` is 0 in the config.

    Args:
        config: A config, its file, or a name that :func:`load_config` accepts.
        checkpoint: Checkpoint file. If None, weights stay random, and a warning is
            logged.
        stitch: Initial stitch id. Default: the slow anchor.
        device: Device, such as ``'cpu'`` or ``'cuda:0'``. Default: the best available.
        loaded: What :func:`load_weights_only` read from the checkpoint before.
    """
    try:
        torch.empty(0, device=(device := device or get_device()))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split('. ')[0].splitlines()[0]  # such as of a driver
        expected = (
            f"'cpu' or an accelerator of this machine, such as 'cuda:0': {reason}"
        )
        raise refusal('--device', device, expected) from error
    if loaded is None and checkpoint is not None:
        loaded = load_weights_only(checkpoint)
    cfg = load_config(config)
    import_parts_for(cfg)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    # One process predicts, so nothing needs synchronising; SyncBN fails on CPUs.
    model = revert_sync_batchnorm(MODELS.build(model_config(cfg)))
    stitched = [m for m in model.modules() if isinstance(m, StitchedBackbone)]
    hook = (cfg.get('default_hooks') or {}).get('stitch_statistics') or {}
    own = any(key.endswith('.stitch_mean') for key in weights_of(loaded or {}))
    if own and len(stitched) == 1 and hook.get('num_images') != 0:
        convert_batch_norms(model)  # to load their statistics of each stitch
    if loaded is None:
        message = 'no checkpoint was given: the weights are random'
        print_log(message, logger='current', level=logging.WARNING)
    else:
        load_fitting(model, loaded, str(checkpoint))
    model.cfg, model.dataset_meta = cfg, _dataset_meta(cfg, loaded or {})
    model.loaded_from = checkpoint  # stitches.json is read from its folder
    if stitch is None and len(stitched) == 1:
        stitch = stitched[0].active_stitch.id
    if stitch is not None:
        set_stitch(model, stitch)
    model.to(device)
    model.eval()  # not chained: train() of mmdet's distilled detectors returns None
    return model


def files_in(
    folder: str | os.PathLike, checkpoint: str | os.PathLike | None = None
) -> tuple[Path, Path]:
    """Return the config and a checkpoint in a folder of make_elastic or a training.

    The checkpoint of a training is the given one, else the best one that
    ``CheckpointHook.save_best`` kept, else the last. Of several configs the newest one
    is returned, as every runner writes its own.

    Raises:
        ValueError: If the folder has no config or no checkpoint.
    """
    folder = Path(folder)
    config, weights = folder / 'elastic.py', folder / 'elastic.pth'
    if not (config.is_file() and weights.is_file()):

        def newest(pattern: str) -> Path | None:
            files = folder.glob(pattern)
            return max(files, key=lambda path: path.stat().st_mtime, default=None)

        config, weights = newest('*.py'), newest('best_*.pth')
        record = folder / 'last_checkpoint'
        if weights is None and record.is_file():
            last = Path(record.read_text().strip())
            moved = folder / last.name  # it was written for another working directory
            weights = next((path for path in (moved, last) if path.is_file()), None)
        expected = 'a folder written by make_elastic, or a work directory with the '
        expected += 'config (*.py) and last_checkpoint of a training'
        found = config and (checkpoint or weights)
        check(found, 'argument: folder_or_config', str(folder), expected)
        used = Path(checkpoint or weights).name
        print_log(f'{folder}: {config.name} and {used}', 'current')
    return config, Path(checkpoint or weights)


def _dataset_meta(cfg: Config, checkpoint: dict) -> dict:
    """Return classes and palette from the checkpoint, or else from the test data."""
    meta, known = checkpoint.get('meta'), {}
    found = meta.get('dataset_meta') if isinstance(meta, Mapping) else None
    if not isinstance(found, Mapping) and cfg.get('test_dataloader') is not None:
        dataset = cfg.test_dataloader.dataset
        # Like a build, this looks in the default scope and imports its data sets.
        with DATASETS.switch_scope_and_registry(None) as registry:
            known = getattr(registry.get(dataset.type), 'METAINFO', {})
        found = {**known, **(dataset.get('metainfo') or {})}
    found = {key: (found or {}).get(key) for key in ('classes', 'palette')}
    classes, palette = found['classes'] or (), found['palette'] or ()
    if cfg.get('default_scope') == 'mmseg' and len(classes) != len(palette):
        # mmseg's visualizer needs a colour for every class: the class's own, or random.
        own = dict(zip(*(known.get(key) or () for key in found), strict=False))
        others = np.random.RandomState(42).randint(0, 256, (len(classes), 3)).tolist()
        pairs = zip(classes, others, strict=True)
        found['palette'] = [own.get(name, other) for name, other in pairs]
    return found | drawable(found)
