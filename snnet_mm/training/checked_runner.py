"""Build a runner only after the files and folders of its config are validated."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from snnet_mm.datasets import (
    check_annotation_file,
    check_data_folders,
    naming_empty_data,
)
from snnet_mm.tasks import import_parts_for
from snnet_mm.utils import (
    check,
    check_file,
    check_writable,
    closing_process_group,
    dicts_in,
    guard_checkpoints,
    launched_rank,
    prepare_cpu_distributed,
    suggesting_types,
    work_dir_lock,
)

from .build_runner import build_runner
from .checking_hooks import MonitorCheckHook, WeightCheckHook

INSTEAD = (
    'a network, which tools/make_elastic.py makes elastic once it is trained, or a '
    'chain alone, as tools/export_stitch.py --format mm writes it'
)


@contextmanager
def checked_runner(
    cfg: Config, mode: str, verbose: bool = False, trust: bool = False
) -> Iterator[Runner]:
    """Validate the paths in a config, then yield its runner, to be run in this context.

    If it trains, the context locks the work directory against other trainings. It reads
    checkpoints as data and ends the process group.

    Args:
        cfg: Config with a work directory.
        mode: ``'train'`` or ``'test'``.
        verbose: See :func:`build_runner`.
        trust: See :func:`guard_checkpoints`.
    """
    phases = ('train', 'val') if mode == 'train' else ('test',)
    loaders = [f'{phase}_dataloader' for phase in phases]
    check_file(cfg.get('load_from'), 'config key: load_from')
    for part in dicts_in(cfg.model) if mode == 'train' else ():
        check_file(part.get('checkpoint'), 'config key: init_cfg.checkpoint')
        kind = getattr(part.get('type'), '__name__', part.get('type'))
        check(kind != 'ElasticBackbone', 'model.backbone.type', kind, INSTEAD)
    check_writable(cfg.work_dir, 'option: --work-dir; config key: work_dir')
    import_parts_for(cfg)
    for key in loaders:
        check_data_folders(cfg.get(key), key)
    evaluator = f'{phases[-1]}_evaluator'
    check_annotation_file(cfg.get(evaluator), evaluator)
    prepare_cpu_distributed(cfg)
    alone = mode == 'train' and launched_rank(cfg.get('launcher', 'none')) == 0
    lock = work_dir_lock(cfg.work_dir) if alone else nullcontext()
    empty = naming_empty_data(*loaders)
    guard = guard_checkpoints(trust)
    _keep_config(cfg, mode)
    small = _naming_small_batches(cfg)
    with lock, guard, closing_process_group(), suggesting_types(), empty, small:
        runner = build_runner(cfg, mode, verbose)
        # mm's own checkpoint hook validates nothing.
        runner.register_hook(
            WeightCheckHook() if mode == 'test' else MonitorCheckHook()
        )
        yield runner


@contextmanager
def _naming_small_batches(cfg: Config) -> Iterator[None]:
    """Add config keys to torch's error for batch norms with one value per channel."""
    try:
        yield
    except ValueError as error:
        if 'Expected more than 1 value per channel' not in str(error):
            raise
        size = (cfg.get('train_dataloader') or {}).get('batch_size')
        raise ValueError(
            f'a batch norm sees one value per channel, of which it cannot train: '
            f'batches have {size} image{"s" * (size != 1)}, the last one may have one. '
            'Take 2 or more (config key: train_dataloader.batch_size) and leave out '
            'the incomplete batch (train_dataloader.drop_last=True)'
        ) from error


def _keep_config(cfg: Config, mode: str) -> None:
    """Rename the copy that a runner writes if it would overwrite the config itself."""
    path = Path(cfg.filename or '')
    copy = Path(cfg.work_dir, path.name)
    if path.name and copy.is_file() and copy.samefile(path):
        renamed = path.with_stem(f'{path.stem}_{mode}')
        object.__setattr__(cfg, '_filename', str(renamed))
