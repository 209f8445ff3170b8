"""Train or test the model of a config; nothing else in the package builds a runner."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.optim import OptimWrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from snnet_mm.anchors.pretrained import SOURCES
from snnet_mm.datasets import check_annotation_file, check_data_folders
from snnet_mm.evaluation import evaluate_whole_model
from snnet_mm.models import compile_stitches, explaining_out_of_memory, unwrapped
from snnet_mm.stitching import StitchTable
from snnet_mm.tasks import import_parts_for
from snnet_mm.utils import (
    check,
    check_file,
    check_writable,
    closing_process_group,
    configs,
    dicts_in,
    guard_checkpoints,
    launched_rank,
    prepare_distributed,
    quiet_terminal,
    work_dir_lock,
)

from .checking_hooks import WeightCheckHook
from .config import (
    check_hooks,
    decay_anchors,
    make_safe,
    set_augmentation,
    set_length,
    set_resume,
    set_test,
    set_visualization,
    tests_stitches,
    train_in_half_precision,
)
from .schedule_steps import RescheduleHook
from .trial import try_images

INSTEAD = (
    'a plain network, which tools/make_elastic.py makes elastic after training, or a '
    'single chain, exported by tools/export_stitch.py --format mm'
)


def train(
    config: str | os.PathLike | Config,
    work_dir: str | os.PathLike | None = None,
    cfg_options: Mapping[str, Any] | None = None,
    *,
    iters: int | None = None,
    epochs: int | None = None,
    resume: bool | None = None,
    amp: bool = False,
    scale_lr: bool = False,
    launcher: str = 'none',
    plain_hooks: bool = False,
    verbose: bool = False,
    trust: bool = False,
) -> Runner:
    """Train the model of a config with the options of ``tools/train.py``.

    The work directory is locked against other trainings.

    Args:
        config: A config, or its file.
        work_dir: Output folder. Default: ``work_dir`` of the config.
        cfg_options: Settings to override in the config, as ``'a.b'`` to value.
        iters: See :func:`~snnet_mm.training.config.set_length`.
        epochs: See :func:`~snnet_mm.training.config.set_length`.
        resume: See :func:`~snnet_mm.training.config.set_resume`.
        amp: Whether to train in mixed precision; on a CPU in bfloat16.
        scale_lr: Whether to scale the learning rate to the batch.
        launcher: Launcher of the processes, as in mmengine.
        plain_hooks: Whether to skip :func:`~snnet_mm.training.config.make_safe`.
        verbose: Whether the terminal shows mmengine's whole log.
        trust: See :func:`~snnet_mm.utils.checkpoint_guard.guard_checkpoints`.

    Returns:
        The runner, after the training.

    Raises:
        ValueError: If a setting is invalid, or another training uses the folder.
    """
    cfg = configs.runner_config(config, work_dir, cfg_options)
    set_length(cfg, iters, epochs)
    cfg.launcher, first = launcher, launched_rank(launcher) == 0
    train_in_half_precision(cfg, amp)
    set_resume(cfg, resume, cfg_options)
    if scale_lr:
        base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
        key = 'auto_scale_lr.base_batch_size'
        check(base, key, base, 'the batch size of the config, for --auto-scale-lr')
        cfg.auto_scale_lr = dict(base_batch_size=base, enable=True)
    if not plain_hooks and (parts := make_safe(cfg)) and first:
        print(f'Safe training (--plain-hooks disables it): {", ".join(parts)}.')
    if decay_anchors(cfg) and first:
        print('Layer-wise decay: AnchorLayerDecayConstructor, which knows the anchors.')
    with _runner(cfg, 'train', verbose, trust) as runner:
        if iters or epochs:
            runner.register_hook(RescheduleHook())
        runner.train()
    return runner


def test(
    config: str | os.PathLike | Config,
    checkpoint: str | os.PathLike | nn.Module,
    work_dir: str | os.PathLike | None = None,
    cfg_options: Mapping[str, Any] | None = None,
    *,
    show_dir: str | None = None,
    tta: bool = False,
    launcher: str = 'none',
    verbose: bool = False,
    trust: bool = False,
    costs: StitchTable | None = None,
    compile: bool = False,
    **settings: Any,
) -> Runner:
    """Test stitches of a model, or a model without stitches, as ``tools/test.py`` does.

    A few images pass through the test first: what would fail late fails at once.

    Args:
        config: A config, or its file.
        checkpoint: Checkpoint file, or the model of the config with its weights. It
            stays on the device of the runner, in evaluation mode.
        work_dir: Output folder. Default: ``work_dir`` of the config.
        cfg_options: Settings to override in the config, as ``'a.b'`` to value.
        show_dir: Folder for painted images.
        tta: Whether to average predictions by the config's test-time augmentation.
        launcher: See :func:`train`.
        verbose: See :func:`train`.
        trust: See :func:`train`.
        costs: Known costs of all stitches. Default: they are counted.
        compile: Whether to compile every stitch; see
            :func:`~snnet_mm.models.compile_stitches`.
        **settings: Settings of :class:`~snnet_mm.evaluation.StitchTestLoop`; None skips
            a setting. Without any, the config's own test runs.

    Returns:
        The runner, after the test. ``test_loop.table`` of a test of stitches holds
        the results.

    Raises:
        ValueError: If a setting, the checkpoint or the data is invalid.
    """
    model = checkpoint if isinstance(checkpoint, nn.Module) else None
    if model is None:
        check_file(checkpoint, 'argument: checkpoint')
    cfg = configs.runner_config(config, work_dir, cfg_options)
    cfg.launcher = launcher
    if model is None:
        cfg.load_from = str(checkpoint)
    else:
        cfg.load_from, cfg.resume = None, False
        expected = 'False for a model that is built: it is wrapped by its config'
        check(not tta, 'argument: tta', tta, expected)
    set_test(cfg, **settings)
    if show_dir is not None:
        set_visualization(cfg, show_dir)
    if tta:
        set_augmentation(cfg)
    with _runner(cfg, 'test', verbose, trust, model) as runner:
        for warning in configs.misspelt_keys(cfg):
            runner.logger.warning(warning)
        runner.register_hook(WeightCheckHook())
        try_images(runner)
        if compile:  # after the trial of a stitch that may not be tested
            compile_stitches(runner.model)
        if tests_stitches(cfg):
            runner.test_loop.costs = costs
            runner.test()
        else:
            evaluate_whole_model(runner)
    return runner


def results_of(runner: Runner) -> StitchTable:
    """Return the costs and metrics of a test of stitches."""
    table, config = runner.test_loop.table, runner.cfg.get('test_evaluator')
    check(table, 'test_evaluator', config, 'an evaluator with metrics')
    return table


@contextmanager
def _runner(
    cfg: Config, mode: str, verbose: bool, trust: bool, model: nn.Module | None = None
) -> Iterator[Runner]:
    """Check the paths in a config, then yield its runner, to be run in this context.

    The runner builds the model of the config unless one is given. The context reads
    checkpoints as data, and ends the process group. For a training, it locks the work
    directory.
    """
    phases = ('train', 'val') if mode == 'train' else ('test',)
    check_hooks(cfg)
    check_file(cfg.get('load_from'), 'config key: load_from')
    if mode == 'train':
        _check_model(cfg.model)
        stitched = 'stitch_sampling' in (cfg.get('default_hooks') or {})
        expected = 'False: torch would compile again for every stitch that is trained; '
        expected += 'snnet_mm.load(compile=True) compiles for inference'
        compiled = cfg.get('compile')
        check(not (stitched and compiled), 'compile', compiled, expected)
    check_writable(cfg.work_dir, 'option: --work-dir; config key: work_dir')
    import_parts_for(cfg)
    for key in (f'{phase}_dataloader' for phase in phases):
        check_data_folders(cfg.get(key), key)
    evaluator = f'{phases[-1]}_evaluator'
    check_annotation_file(cfg.get(evaluator), evaluator)
    prepare_distributed(cfg)
    alone = mode == 'train' and launched_rank(cfg.launcher) == 0
    lock = work_dir_lock(cfg.work_dir) if alone else nullcontext()
    _keep_config(cfg, mode)
    with lock, guard_checkpoints(trust), closing_process_group():
        kind = cfg.get('runner_type')
        short = not (kind or verbose)
        cls = _ShortLogRunner if short else RUNNERS.get(kind or 'Runner')
        runner = (cls if model is None else _runner_of(cls, model)).from_cfg(cfg)
        if is_main_process() and runner.cfg.filename:  # mmengine's copy, importable
            copy = Path(runner.work_dir, Path(runner.cfg.filename).name)
            configs.write_config(runner.cfg, copy)
        if short and is_main_process():
            print(f'Long log: {runner.log_dir}', flush=True)
        batch = (cfg.get(f'{phases[0]}_dataloader') or {}).get('batch_size')
        with explaining_out_of_memory(runner.model, batch):
            yield runner
        # DDP would keep the process group, and its threads, until the interpreter ends.
        runner.model = unwrapped(runner.model)


def _check_model(model: Mapping) -> None:
    """Raise if pretrained weights are missing, or an elastic network is to be trained.

    Its training would start from random weights, and train the network alone.
    """
    for part in dicts_in(model):
        key = f'config key: init_cfg.checkpoint; {SOURCES}'
        check_file(part.get('checkpoint'), key)
        kind = configs.step_name(part)
        check(kind != 'ElasticBackbone', 'model.backbone.type', kind, INSTEAD)


def _runner_of(cls: type[Runner], model: nn.Module) -> type[Runner]:
    """Return a class whose runners run a model, and build none from the config.

    A model in the config itself would be copied by ``from_cfg``.
    """

    class ModelRunner(cls):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **dict(kwargs, model=model))

    return ModelRunner


class _ShortLogRunner(Runner):
    """Shows warnings alone on the terminal until the run begins, and then all.

    Warnings of mmengine that no user can act on are hidden, of every frozen parameter,
    metrics without a prefix, and its own file clients. The log file is complete.
    """

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        self._begins = ExitStack()
        self._begins.enter_context(quiet_terminal(logger))
        return logger

    def build_optim_wrapper(self, *args, **kwargs) -> OptimWrapper:
        with quiet_terminal(self.logger, logging.ERROR):
            return super().build_optim_wrapper(*args, **kwargs)

    def build_evaluator(self, *args, **kwargs) -> Evaluator:
        with quiet_terminal(self.logger, logging.ERROR):
            return super().build_evaluator(*args, **kwargs)

    def save_checkpoint(self, *args, **kwargs) -> None:
        with quiet_terminal(self.logger, logging.ERROR):
            super().save_checkpoint(*args, **kwargs)

    def call_hook(self, fn_name: str, **kwargs) -> None:
        if fn_name == 'before_run':
            self._begins.close()
        super().call_hook(fn_name, **kwargs)


def _keep_config(cfg: Config, mode: str) -> None:
    """Rename the copy that a runner writes if it would overwrite the config itself."""
    path = Path(cfg.filename or '')
    copy = Path(cfg.work_dir, path.name)
    if path.name and copy.is_file() and copy.samefile(path):
        renamed = path.with_stem(f'{path.stem}_{mode}')
        object.__setattr__(cfg, '_filename', str(renamed))
