"""Elastic and stitched networks: the fourteen public names of ``snnet_mm``.

With ``import snnet_mm as sn``, every name is imported when it is first used, so
``sn.Runtime`` requires no torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from . import register  # noqa: F401
from .costs import cost_table, device_name, measure_latency, measuring_setup
from .elastic import make_elastic
from .exports import StitchExporter
from .inferencers import inferencer_of, predictions_of
from .models import (
    compile_stitches,
    find_stitched_backbone,
    is_compiled,
    set_stitch,
)
from .models.init_model import files_in, init_model
from .runtime import StitchRuntime as Runtime
from .stitch_models import stitch_models as stitch
from .stitching import UNITS, Choice, parse_budget, pick_stitch
from .stitching import StitchTable as Table
from .training import run
from .utils import runner_config

if TYPE_CHECKING:
    import numpy as np

    from .runtime import Detections

# Repeats the package's list: mkdocstrings and type checkers only read literals.
__all__ = [
    'Runtime',
    'Table',
    'evaluate',
    'export',
    'load',
    'make_elastic',
    'measure',
    'pick',
    'predict',
    'set_budget',
    'set_stitch',
    'stitch',
    'stitches',
    'train',
]


def load(
    folder_or_config: str | os.PathLike | Config,
    checkpoint: str | os.PathLike | None = None,
    stitch: int | None = None,
    device: str | None = None,
    compile: bool = False,
) -> nn.Module:
    """Load a trained model in eval mode.

    Args:
        folder_or_config: Folder of :func:`make_elastic`, work directory of any
            training, or a config.
        checkpoint: Checkpoint file. Default: that of the folder; of a work directory
            the best one, if the training kept one (``save_best``), else the last.
        stitch: Id of the initially active stitch. Default: the slowest anchor, which is
            the network itself in elastic models.
        device: Device such as ``'cpu'`` or ``'cuda:0'``. Default: the best available.
        compile: Whether ``torch.compile`` compiles each stitch when it first runs, for
            GPUs, where small stitches spend their time on launching kernels.

    Returns:
        An mm model, with its config as ``model.cfg``.

    Raises:
        ValueError: If the config, the checkpoint or the stitch is invalid.

    Examples:
        >>> model = sn.load('work_dirs/elastic', stitch=3)
    """
    if not isinstance(folder_or_config, Config) and Path(folder_or_config).is_dir():
        folder_or_config, checkpoint = files_in(folder_or_config, checkpoint)
    model = init_model(folder_or_config, checkpoint, stitch, device)
    if compile:
        compile_stitches(model)
    return model


def measure(
    model: nn.Module, size: tuple[int, int] | None = None, latency: bool = False
) -> Table:
    """Compute the costs of every stitch of a model.

    Args:
        model: A model of :func:`load`.
        size: Image height and width. Default: ``test_cfg.input_size`` of the config.
        latency: Whether to also measure milliseconds on the device of the model.

    Returns:
        FLOPs, parameters and, if measured, milliseconds of one image, by stitch id.

    Raises:
        ValueError: If the model has no stitches, or the size is unknown.

    Examples:
        >>> sn.measure(model, (512, 512), latency=True)[3].latency
    """
    size = size or (model.cfg.get('test_cfg') or {}).get('input_size')
    table = cost_table(model, size)
    if not latency:
        return table
    timed = None if is_compiled(model) else ()  # others are timed by parts alone
    times = measure_latency(model, size, check=timed).by_stitch
    return table.measured(measuring_setup(model, 1), times)


def stitches(model: nn.Module, results: Table | None = None) -> list[dict[str, Any]]:
    """List the stitches of a model with their costs and scores.

    Args:
        model: A model of :func:`load`.
        results: Results of :func:`evaluate`. Default: the ``stitches.json`` beside the
            loaded checkpoint, if it exists.

    Returns:
        A row for each stitch: ``id``, ``route`` in words, ``costs`` by name, and
        ``scores`` by metric, which are empty for unevaluated stitches.

    Raises:
        ValueError: If the results belong to another stitching space.

    Examples:
        >>> [(row['id'], row['costs']['flops']) for row in sn.stitches(model)]
    """
    results = results or _known_results(model)
    # Stock mm configs may specify no input size, but results do.
    table = measure(model, results.input_size if results else None)
    if results is not None:
        results.check_space(find_stitched_backbone(model).space)
        table = Table.merge(table, results.at(results.input_size))
    return [
        dict(
            id=row.id,
            route=row.route,
            costs={n: v for n in UNITS if (v := getattr(row, n)) is not None},
            scores=dict(row.metrics),
        )
        for row in table.rows
    ]


def pick(model: nn.Module, budget: str, results: Table | None = None) -> Choice:
    """Choose the best stitch within a budget.

    Args:
        model: A model of :func:`load`.
        budget: Milliseconds of one image such as ``'25ms'``, multiply-accumulates such
            as ``'2G'``, parameters such as ``'3M'``, or ``'40%'`` of the FLOPs of the
            largest stitch.
        results: Results to choose by. Default: the ``stitches.json`` beside the loaded
            checkpoint. Without results, stitches of two anchors are ranked by a guess
            from their costs; elastic models require results.

    Returns:
        The choice: its ``id``, and the ``reason`` in words.

    Raises:
        ValueError: If no stitch is within the budget, the budget is invalid, or an
            elastic model has no results.

    Examples:
        >>> sn.pick(model, '40%').reason
    """
    results = results or _known_results(model)
    wanted = parse_budget(budget, 'argument: budget')
    space = find_stitched_backbone(model).space
    if results is None:
        table = measure(model, latency=wanted.cost == 'latency')
    else:
        results.check_space(space)
        untimed = any(row.latency is None for row in results.ranked())
        latency = wanted.cost == 'latency' and untimed
        # Results may lack the largest stitch, of which budgets may be shares.
        table = Table.merge(measure(model, results.input_size, latency), results)
    return pick_stitch(space, wanted, table, [device_name(model)])


def set_budget(model: nn.Module, budget: str, results: Table | None = None) -> int:
    """Switch a model to the best stitch within a budget, and log the reason.

    Args:
        model: A model of :func:`load`.
        budget: See :func:`pick`.
        results: See :func:`pick`.

    Returns:
        The id of the stitch.

    Raises:
        ValueError: As in :func:`pick`.

    Examples:
        >>> sn.set_budget(model, '25ms')
    """
    choice = pick(model, budget, results)
    print_log(choice.reason, 'current')
    set_stitch(model, choice.id)
    return choice.id


def predict(
    model: nn.Module, images: Any, out_dir: str | os.PathLike | None = None
) -> list[np.ndarray | Detections]:
    """Predict images with the active stitch and the inferencer of the mm package.

    Args:
        model: A model of :func:`load`.
        images: A file, a BGR array of uint8, a list of these, or a folder.
        out_dir: Folder for drawn predictions; by default nothing is drawn.

    Returns:
        For each image, a map of classes or depths, class scores, or detections.

    Raises:
        ValueError: If there are no images, or the config has no pipeline.

    Examples:
        >>> (mask,) = sn.predict(model, 'street.jpg', out_dir='drawn')
    """
    inferencer = inferencer_of(model)
    key = 'show_dir' if model.cfg.default_scope == 'mmpretrain' else 'out_dir'
    drawn = {} if out_dir is None else {key: str(out_dir)}
    return predictions_of(inferencer(images, return_datasamples=True, **drawn))


def export(
    model: nn.Module,
    out_dir: str | os.PathLike,
    stitches: str | int | Sequence[int] = 'all',
    formats: Sequence[str] = ('onnx',),
    results: Table | None = None,
    **options: Any,
) -> dict:
    """Export one stitch as a standalone model, or several as a bundle.

    Args:
        model: A model of :func:`load`; on a GPU, a copy is exported.
        out_dir: Output folder, which :class:`Runtime` opens.
        stitches: One id, or ids, words or budgets as in
            :class:`snnet_mm.stitching.Selection`.
        formats: ``'mm'``, ``'onnx'`` or both.
        results: Results for the manifest. Default: the ``stitches.json`` beside the
            loaded checkpoint, if it exists.
        **options: ``precisions``, ``verify_on`` and other fields of
            :class:`snnet_mm.exports.ExportRequest`.

    Returns:
        The manifest.

    Raises:
        ValueError: If a stitch, a format or the output folder is invalid.

    Examples:
        >>> sn.export(model, 'bundle', [0, 2, 4])
        >>> sn.Runtime('bundle').set_budget('25ms')
    """
    results = results or _known_results(model)
    exporter = StitchExporter(model.cfg, model, out_dir, results=results)
    if isinstance(stitches, int):
        return exporter.export_stitch(stitches, formats, **options)
    return exporter.export_bundle(stitches, formats, **options)


def train(
    config: str | os.PathLike,
    work_dir: str | os.PathLike | None = None,
    iters: int | None = None,
    resume: bool | None = None,
    cfg_options: dict | None = None,
) -> str:
    """Train the model of a config.

    Args:
        config: A config, stitched or not.
        work_dir: Output folder. Default: ``work_dir`` of the config.
        iters: Number of iterations, to which the schedule is scaled.
        resume: Whether to resume from the latest checkpoint in the folder. Default: as
            in the config.
        cfg_options: Settings to override in the config, as ``'a.b'`` to value.

    Returns:
        Path of the last checkpoint.

    Raises:
        ValueError: If a setting is invalid.

    Examples:
        >>> checkpoint = sn.train('snnet.py', 'work_dirs/snnet', iters=1000)
    """
    runner = run.train(config, work_dir, cfg_options, iters=iters, resume=resume)
    return runner.message_hub.get_info('last_ckpt')


def evaluate(
    config: str | os.PathLike,
    checkpoint: str | os.PathLike,
    stitches: str | int | Sequence[int] = 'all',
    work_dir: str | os.PathLike | None = None,
    **options: Any,
) -> Table:
    """Test stitches of a model on the test data of its config, in one pass.

    Args:
        config: The config of a stitched model.
        checkpoint: Its checkpoint.
        stitches: See :class:`snnet_mm.stitching.Selection`.
        work_dir: Folder for ``stitches.json``. Default: ``work_dir`` of the config.
        **options: Settings of the test loop, such as ``limit=100``.

    Returns:
        Costs and metrics of the stitches.

    Raises:
        ValueError: If a stitch, the checkpoint or the data is invalid.

    Examples:
        >>> [row.id for row in sn.evaluate('snnet.py', 'snnet.pth').front()]
    """
    cfg = runner_config(config, work_dir)
    where = dict(stitches=stitches, out_dir=cfg.work_dir)
    return run.results_of(run.test(cfg, checkpoint, **where, **options))


def _known_results(model: nn.Module) -> Table | None:
    """Return the results beside the checkpoint of a model, if they exist."""
    checkpoint = getattr(model, 'loaded_from', None)
    path = Path(checkpoint).with_name('stitches.json') if checkpoint else None
    return Table.read(path) if path is not None and path.is_file() else None
