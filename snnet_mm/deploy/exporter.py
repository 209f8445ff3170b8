"""Exporting one stitch, or a bundle of several that share their weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from torch import nn

from snnet_mm.evaluation import cost_table, preprocessed_size
from snnet_mm.models import find_stitched_backbone, model_config, set_stitch
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import check_writable

from .graph import (
    INPUT,
    PredictionGraph,
    Predictions,
    as_tuple,
    output_names,
    run_torch_export,
    save_torch_export,
    trace,
)
from .manifest import ExportedFile, ExportedStitch, Manifest
from .onnx_files import WEIGHTS, OnnxBundle, require_onnx, run_onnx, save_onnx, to_onnx
from .parity import check_parity, predict_loaded, sample_images
from .single import load_single, save_single, single_stitch

# What a format can be, and the suffix of its file.
FORMATS = {
    'mm': '.pth',
    'safetensors': '.safetensors',
    'onnx': '.onnx',
    'torch-export': '.pt2',
}


class StitchExporter:
    """Writes stitches of one model, then reads every file and compares predictions.

    They are compared with those of the stitched model, on images of the test set or on
    noise where these are not at hand; a file that differs is an error. What parts of
    the model follow :func:`set_stitch`, such as the batch norm statistics of a
    :class:`PerStitchBN`, are exported as they are for the stitch. Afterwards the last
    exported stitch is the active one.

    Args:
        cfg: Config of the stitched model.
        model: The stitched model with its weights, on the CPU. Its ``dataset_meta``,
            if there is one, goes into the checkpoint and the manifest.
        out_dir: Folder to write to.
        size: Height and width of a graph's images, and of the FLOPs in the manifest;
            by default the fixed size of the model's data preprocessor.
        results: An evaluation of the model; its metrics go into the manifest.
        num_images: Images to compare on, two or more.

    Raises:
        ValueError: If the folder cannot be written to, no size is known, or the results
            are of another stitching space.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        out_dir: str | os.PathLike,
        size: Sequence[int] | None = None,
        results: StitchResults | None = None,
        num_images: int = 2,
    ) -> None:
        self.cfg, self.model, self.results = cfg, model.eval(), results
        self.out_dir = check_writable(out_dir, 'option: --out')
        self.space = find_stitched_backbone(model).space
        self.size = _known_size(model, size)
        self.costs = cost_table(model, self.size)
        if results is not None:
            results.check_space(self.space)
        self.metrics = {r.id: r.metrics for r in results.stitches} if results else {}
        self.preprocessor = model_config(cfg).get('data_preprocessor') or {}
        # As mm loads them, in the order of channels BGR, and as graphs take them.
        self.images, source = sample_images(cfg, num_images, self.size)
        self.graph_images = self.images.flip(1) if self._is_rgb else self.images
        self.compared_on = f'{num_images} {source}'

    def export_stitch(
        self, stitch_id: int, formats: Sequence[str] = ('mm',)
    ) -> Manifest:
        """Write one stitch as a model of its own.

        Args:
            stitch_id: The stitch.
            formats: ``'mm'`` and ``'safetensors'`` write a config and a checkpoint,
                ``'onnx'`` and ``'torch-export'`` a graph.

        Returns:
            The manifest, which is also written.

        Raises:
            ValueError: If the id or a format is unknown, or a package is missing.
        """
        if not formats or not set(formats) <= set(FORMATS):
            raise ValueError(
                f'formats={tuple(formats)}; allowed are {tuple(FORMATS)} (option: '
                '--format)'
            )
        if 'onnx' in formats:
            require_onnx()
        files = []
        cfg, single, wanted = self._alone(stitch_id)
        if {'onnx', 'torch-export'} & set(formats):
            traced = self._trace(single)
        for kind in formats:
            path = self.out_dir / f'stitch_{stitch_id}{FORMATS[kind]}'
            if kind == 'onnx':
                save_onnx(to_onnx(traced, self.graph_images), path)
            elif kind == 'torch-export':
                save_torch_export(traced, path)
            else:
                save_single(cfg, single, path)
            files.append(self._compare(kind, stitch_id, path, wanted))
        return self._finish([self._entry(stitch_id, files)], wanted)

    def export_bundle(self, stitches: str | Sequence[int]) -> Manifest:
        """Write several stitches as ONNX graphs that share one file of weights.

        Args:
            stitches: See :func:`snnet_mm.stitching.select_stitches`.

        Returns:
            The manifest, which is also written.

        Raises:
            ValueError: If an id is unknown or repeated, a package is missing, or the
                folder holds a bundle of other stitches.
        """
        require_onnx()
        # Results may hold latency, which the costs of the model do not.
        costs = self.costs if self.results is None else None
        ids = select_stitches(self.space, stitches, costs, self.results)
        _check_no_other_bundle(self.out_dir, ids)
        bundle, wanted, entries = OnnxBundle(self.out_dir), {}, []
        for i in ids:
            _, single, wanted[i] = self._alone(i)
            bundle.add(f'stitch_{i}.onnx', self._trace(single), self.graph_images)
        weights = bundle.save()
        for i in ids:
            path = self.out_dir / f'stitch_{i}.onnx'
            files = [self._compare('onnx', i, path, wanted[i])]
            entries.append(self._entry(i, files))
        shared = dict(name=weights.name, bytes=weights.stat().st_size)
        return self._finish(entries, wanted[ids[0]], shared)

    def _alone(self, stitch_id: int) -> tuple[Config, nn.Module, Predictions]:
        """Config and model of a stitch alone, and what the stitched model predicts."""
        set_stitch(self.model, stitch_id)
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        return cfg, single, predict_loaded(self.model, self.images)

    def _trace(self, single: nn.Module) -> torch.export.ExportedProgram:
        graph = PredictionGraph(single, self.size, self.preprocessor)
        return trace(graph, self.graph_images)

    def _compare(
        self, kind: str, stitch_id: int, path: Path, wanted: Predictions
    ) -> ExportedFile:
        """Read a file again and compare its predictions."""
        if kind == 'onnx':
            got = run_onnx(path, self.graph_images)
        elif kind == 'torch-export':
            got = run_torch_export(path, self.graph_images)
        else:
            got = predict_loaded(load_single(path), self.images)
        difference = check_parity(kind, stitch_id, got, wanted)
        return ExportedFile(kind, path.name, path.stat().st_size, difference)

    @property
    def _is_rgb(self) -> bool:
        return any(self.preprocessor.get(key) for key in ('bgr_to_rgb', 'to_rgb'))

    def _entry(self, stitch_id: int, files: Sequence[ExportedFile]) -> ExportedStitch:
        stitch = self.space[stitch_id]
        cost, route = self.costs[stitch_id], self.space.describe(stitch)
        metrics = self.metrics.get(stitch_id, {})
        return ExportedStitch(
            stitch_id, stitch.kind, route, cost.flops, cost.params, files, metrics
        )

    def _finish(
        self,
        entries: Sequence[ExportedStitch],
        wanted: Predictions,
        weights: Mapping | None = None,
    ) -> Manifest:
        images = dict(
            name=INPUT,
            dtype='float32',
            shape=['batch', 3, *self.size],
            channels='RGB' if self._is_rgb else 'BGR',
            range=[0, 255],
            mean=self.preprocessor.get('mean'),
            std=self.preprocessor.get('std'),
        )
        tensors = as_tuple(wanted)
        outputs = [
            dict(name=name, dtype='float32', shape=['batch', *tensor.shape[1:]])
            for name, tensor in zip(output_names(len(tensors)), tensors, strict=True)
        ]
        meta = getattr(self.model, 'dataset_meta', None) or {}
        classes = list(meta.get('classes', ()))
        manifest = Manifest(
            images,
            outputs,
            classes,
            self.compared_on,
            self.space.fingerprint,
            entries,
            weights,
        )
        manifest.write(self.out_dir)
        return manifest


def _check_no_other_bundle(folder: Path, ids: Sequence[int]) -> None:
    """Refuse to replace weights that graphs of another bundle point into."""
    graphs = {path.name for path in folder.glob('stitch_*.onnx')}
    left = sorted(graphs - {f'stitch_{i}.onnx' for i in ids})
    if left and (folder / WEIGHTS).exists():
        raise ValueError(
            f'{folder} holds a bundle with {", ".join(left)}, which would no longer '
            f'fit a new {WEIGHTS}; allowed are another folder, or one without them '
            '(option: --out)'
        )


def _known_size(model: nn.Module, size: Sequence[int] | None) -> tuple[int, int]:
    try:
        height, width = size or preprocessed_size(model)
    except ValueError as error:
        raise ValueError(
            'an export needs the size of the images, and the data preprocessor has '
            'none; give height and width (option: --shape; config key: '
            'model.data_preprocessor.size)'
        ) from error
    if min(height, width) < 1:
        raise ValueError(
            f'images of {height}x{width} pixels; allowed are positive sizes (option: '
            '--shape)'
        )
    return height, width
