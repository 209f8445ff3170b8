"""Export of one stitch, or of a bundle of several that share their weights."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from snnet_mm.evaluation import cost_table, preprocessed_size
from snnet_mm.models import find_stitched_backbone, model_config, set_stitch
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import atomic_path, check, check_writable, refusal, write_json

from .graph import (
    INPUT,
    PredictionGraph,
    Predictions,
    as_tuple,
    check_parity,
    output_names,
    predict_loaded,
    run_torch_export,
    sample_images,
    trace,
)
from .onnx_files import WEIGHTS, OnnxBundle, require_onnx, run_onnx, save_onnx, to_onnx
from .single import load_single, save_single, single_stitch

# Formats, with the suffixes of their files.
FORMATS = {
    'mm': '.pth',
    'safetensors': '.safetensors',
    'onnx': '.onnx',
    'torch-export': '.pt2',
}
NUM_IMAGES = 2  # to compare on; tracing needs two or more


class StitchExporter:
    """Writes stitches of one model, then reads every file and compares predictions.

    They are compared with those of the stitched model, on images of the test set
    or on noise where there are none; a file that differs is an error. Both ways of
    export return what they write to ``manifest.json``: how graphs are fed, what they
    predict, and about each stitch its route, costs, metrics of ``results``, and files.
    Graphs take images of ``size``, by default that of the model's data preprocessor.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        out_dir: str | os.PathLike,
        size: Sequence[int] | None = None,
        results: StitchResults | None = None,
    ) -> None:
        self.cfg, self.model, self.results = cfg, model.eval(), results
        self.out_dir = check_writable(out_dir, 'option: --out')
        self.space = find_stitched_backbone(model).space
        try:
            self.size = tuple(size or preprocessed_size(model))
        except ValueError as error:
            allowed = 'height and width, or the config key model.data_preprocessor.size'
            raise refusal('--shape', size, allowed) from error
        check(min(self.size) > 0, '--shape', self.size, 'positive sizes')
        self.costs = cost_table(model, self.size)
        if results is not None:
            results.check_space(self.space)
        self.preprocessor = model_config(cfg).get('data_preprocessor') or {}
        to_rgb = any(self.preprocessor.get(key) for key in ('bgr_to_rgb', 'to_rgb'))
        self.channels = 'RGB' if to_rgb else 'BGR'
        # As mm loads them, in the order of channels BGR, and as graphs take them.
        self.images, source = sample_images(cfg, NUM_IMAGES, self.size)
        self.graph_images = self.images.flip(1) if to_rgb else self.images
        self.compared_on = f'{NUM_IMAGES} {source}'

    def export_stitch(self, stitch_id: int, formats: Sequence[str] = ('mm',)) -> dict:
        """Write one stitch, in some of :data:`FORMATS`, and the manifest."""
        known = formats and set(formats) <= set(FORMATS)
        check(known, '--format', tuple(formats), FORMATS)
        if 'onnx' in formats:
            require_onnx()
        cfg, single, wanted = self._build_single(stitch_id)
        if {'onnx', 'torch-export'} & set(formats):
            traced = self._trace(single)
        files = []
        for kind in formats:
            path = self.out_dir / f'stitch_{stitch_id}{FORMATS[kind]}'
            if kind == 'onnx':
                save_onnx(to_onnx(traced, self.graph_images), path)
            elif kind == 'torch-export':
                with atomic_path(path) as temporary:
                    torch.export.save(traced, temporary)
            else:
                save_single(cfg, single, path)
            files.append(self._compare(kind, stitch_id, path, wanted))
        return self._write_manifest({stitch_id: files}, wanted)

    def export_bundle(self, stitches: str | Sequence[int]) -> dict:
        """Write stitches, see :func:`select_stitches`, as graphs that share weights."""
        require_onnx()
        # Results may hold latency, which the costs of the model do not.
        costs = self.costs if self.results is None else None
        say = partial(print_log, logger='current')
        ids = select_stitches(self.space, stitches, costs, self.results, say=say)
        paths = {i: self.out_dir / f'stitch_{i}.onnx' for i in ids}
        # Graphs of another bundle point into weights that would be replaced.
        others = {*self.out_dir.glob('stitch_*.onnx')} - {*paths.values()}
        names = ', '.join(sorted(p.name for p in others))
        alone = not others or not (self.out_dir / WEIGHTS).exists()
        allowed = f'a folder without the bundle of {names}, which needs {WEIGHTS}'
        check(alone, '--out', str(self.out_dir), allowed)
        bundle, wanted = OnnxBundle(self.out_dir), {}
        for i, path in paths.items():
            _, single, wanted[i] = self._build_single(i)
            bundle.add(path.name, self._trace(single), self.graph_images)
        weights = bundle.save()
        files = {i: [self._compare('onnx', i, paths[i], wanted[i])] for i in ids}
        shared = dict(name=weights.name, bytes=weights.stat().st_size)
        return self._write_manifest(files, wanted[ids[0]], shared)

    def _build_single(self, stitch_id: int) -> tuple[Config, nn.Module, Predictions]:
        set_stitch(self.model, stitch_id)
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        return cfg, single, predict_loaded(self.model, self.images)

    def _trace(self, single: nn.Module) -> torch.export.ExportedProgram:
        graph = PredictionGraph(single, self.size, self.preprocessor)
        return trace(graph, self.graph_images)

    def _compare(
        self, kind: str, stitch_id: int, path: Path, wanted: Predictions
    ) -> dict:
        if kind == 'onnx':
            got = run_onnx(path, self.graph_images)
        elif kind == 'torch-export':
            got = run_torch_export(path, self.graph_images)
        else:
            got = predict_loaded(load_single(path), self.images)
        difference = check_parity(kind, stitch_id, got, wanted)
        about = dict(format=kind, name=path.name, bytes=path.stat().st_size)
        return about | dict(max_difference=difference)

    def _write_manifest(
        self,
        files: Mapping[int, Sequence[dict]],
        predictions: Predictions,
        weights: Mapping | None = None,
    ) -> dict:
        measured = self.results.measured if self.results else ()
        metrics = {result.id: dict(result.metrics) for result in measured}
        stitches = []
        for i, written in files.items():
            stitch, cost = self.space[i], self.costs[i]
            about = dict(id=i, kind=stitch.kind, route=self.space.describe(stitch))
            about |= dict(flops=cost.flops, params=cost.params, files=written)
            stitches.append(about | dict(metrics=metrics.get(i, {})))
        images = dict(name=INPUT, dtype='float32', shape=['batch', 3, *self.size])
        images |= dict(channels=self.channels, range=[0, 255])
        images |= {key: self.preprocessor.get(key) for key in ('mean', 'std')}
        tensors = as_tuple(predictions)
        names = zip(output_names(len(tensors)), tensors, strict=True)
        outputs = [
            dict(name=name, dtype='float32', shape=['batch', *tensor.shape[1:]])
            for name, tensor in names
        ]
        meta = getattr(self.model, 'dataset_meta', None) or {}
        manifest = dict(
            input=images,
            outputs=outputs,
            classes=list(meta.get('classes') or ()),
            compared_on=self.compared_on,
            space=self.space.fingerprint,
            stitches=stitches,
            weights=weights,
        )
        write_json(self.out_dir / 'manifest.json', manifest)
        return manifest
