"""Export of one stitch, or of a bundle of several stitches with shared weights."""

import json
import logging
import math
import os
import re
import shutil
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import init_default_scope
from torch import nn

from snnet_mm.anchors import image_channels
from snnet_mm.costs import cost_table, preprocessed_size, size_name, window_of
from snnet_mm.costs.sizes import empty_images
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.runtime.bundle import describe_file, files_of, name_by_content
from snnet_mm.runtime.manifest import DIGITS, MANIFEST, VERSION
from snnet_mm.runtime.steps import Steps, left_steps
from snnet_mm.stitching import Selection, StitchTable
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, check_writable, machine, work_dir_lock, write_json

from .comparison import (
    check_parity,
    first_image_size,
    predict_loaded,
    sample_images,
    test_set_of,
)
from .description import describe_graphs, describe_input
from .formats import FORMATS, ExportRequest, Written
from .graph import StitchBuild
from .normalization import graph_order
from .shared_weights import share_weights
from .single import anchors_of, single_stitch
from .verification import evaluate, finite, loses

NUM_IMAGES = 2  # of a comparison; tracing any batch size needs two or more
UNFINISHED = '.export-'  # prefix of folders of unfinished exports
GRAPH_FILE = re.compile(  # graphs and their weights
    rf'(stitch|weights)\w*-[0-9a-f]{{{DIGITS}}}\.(onnx|safetensors)'
)


class StitchExporter:
    """Exports stitches of one model, then reopens every file to compare predictions.

    Predictions are compared with the stitched model's, on test images or, without a
    test set, on noise. After an error, no new file is left. All export methods return
    the content of ``manifest.json``; see docs/how_to/export.md. Graphs take images of
    ``size``, by default the size of the model's sliding windows, ``input_size`` in the
    config's ``test_cfg``, or the size of the data preprocessor. Checkpoints need no
    size: if it is unknown, costs are counted at :func:`first_image_size`.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        out_dir: str | os.PathLike,
        size: Sequence[int] | None = None,
        results: StitchTable | None = None,
    ) -> None:
        # Graphs are traced and compared on the CPU.
        device = next(model.parameters()).device
        model = model if device.type == 'cpu' else deepcopy(model).cpu()
        self.cfg, self.model, self.results = cfg, model, results
        # Another model may have been loaded since.
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        model.eval()
        self.out_dir = check_writable(out_dir, 'option: --out')
        self.space = find_stitched_backbone(model).space
        self.has_size, window, dataset = True, window_of(model), test_set_of(cfg)
        size = size or window or (cfg.get('test_cfg') or {}).get('input_size')
        try:
            self.size = tuple(size or preprocessed_size(model))
        except ValueError:
            self.size, self.has_size = first_image_size(dataset, model), False
        check(min(self.size) > 0, '--shape', size_name(self.size), '1x1 or more')
        if window is not None:
            key = 'model.test_cfg.crop_size'
            expected = f'{size_name(window)}, the window size ({key})'
            check(self.size == window, '--shape', size_name(self.size), expected)
        self.costs = cost_table(model, self.size)
        name, expected = type(model).__name__, 'an image model: docs/how_to/anchors.md'
        of_images = empty_images(model, self.size, batch=1).ndim == 4
        check(of_images, 'model.type', name, expected)
        if results is not None:
            results.check_space(self.space)
            self.results = results.for_size(self.size)
        # ``images`` are BGR, as mm loads them; graphs may take RGB.
        shape = NUM_IMAGES, image_channels(model), *self.size
        self.images = sample_images(dataset, shape)
        self.graph_images = graph_order(cfg, self.images)
        # Graphs with named outputs list the objects of one image.
        self.ranked = bool(task_of(model).output_names(model))
        source = 'noise' if dataset is None else 'test images'
        self.compared_on = f'{NUM_IMAGES} {source}'
        self.steps = Steps(describe_input(cfg, model, self.size))

    def export_stitch(
        self,
        stitch_id: int,
        formats: Sequence[str] = ('mm',),
        precisions: Sequence[str] = ('fp32',),
        **options,
    ) -> dict:
        """Write one stitch and the manifest; see :class:`ExportRequest`."""
        chosen = Selection(stitch_id)
        return self.export(ExportRequest(chosen, formats, precisions, **options))

    def export_bundle(
        self,
        stitches: str | Sequence[int],
        formats: Sequence[str] = ('onnx',),
        precisions: Sequence[str] = ('fp32',),
        **options,
    ) -> dict:
        """Write stitches (see :class:`Selection`) as graphs that share weights."""
        chosen = Selection(stitches, self.results)
        options |= dict(bundle=True)
        return self.export(ExportRequest(chosen, formats, precisions, **options))

    def export(self, request: ExportRequest) -> dict:
        """Write the requested files, compare each, then move all into place.

        Evaluated files that lose more than the tolerance are left out. If this leaves
        a format without a file of a stitch, the stitch is written in fp32. The model's
        active stitch is the same afterwards.
        """
        graphs = any(FORMATS[name].is_graph for name in request.formats)
        right = self.has_size or not graphs
        expected = 'height and width, or the config key model.data_preprocessor.size'
        check(right, '--shape', None, expected)
        say = partial(print_log, logger='current')
        ids = request.stitches.select(self.space, self.costs, say)
        if graphs:
            lacks = task_of(self.model).without_heads(self.model)
            expected = f'mm alone: {lacks}'
            check(lacks is None, '--format', request.formats, expected)
            if left := self.steps.left:
                say(left_steps(left), level=logging.WARNING)
                expected = f'no value: {left_steps(left)}'
                check(not request.verify_on, '--verify-on', request.verify_on, expected)
        with work_dir_lock(self.out_dir, 'export', '--out'):
            for folder in self.out_dir.glob(f'{UNFINISHED}*'):  # of a killed export
                shutil.rmtree(folder, ignore_errors=True)
            with TemporaryDirectory(prefix=UNFINISHED, dir=self.out_dir) as folder:
                active = find_stitched_backbone(self.model).active_stitch.id
                try:
                    manifest = self._write_all(ids, request, Path(folder))
                finally:
                    set_stitch(self.model, active)
                for path in Path(folder).iterdir():
                    os.replace(path, self.out_dir / path.name)
            # Until this write, manifest and graphs of the earlier export stay valid.
            write_json(self.out_dir / MANIFEST, manifest)
            kept = {file['name'] for file in files_of(manifest)}
            for path in self.out_dir.iterdir():
                if GRAPH_FILE.fullmatch(path.name) and path.name not in kept:
                    path.unlink()
        return manifest

    def _write_all(
        self, ids: Sequence[int], request: ExportRequest, folder: Path
    ) -> dict:
        """Write all files except the manifest to a folder; return the manifest."""
        stitches, weights, results = [], None, self.results
        for n, i in enumerate(ids, start=1):
            print_log(f'Writing stitch {i}, {n} of {len(ids)}', logger='current')
            stitches.append(self._write_stitch(i, request, folder))
        files = [file for stitch in stitches for file in stitch['files']]
        graphs = [file.path for file in files if FORMATS[file.format].is_graph]
        if request.bundle and graphs:
            weights = share_weights(graphs)
        if request.verify_on and results is None:
            metrics = {stitch['id']: stitch['metrics'] for stitch in stitches}
            results = self.costs.with_metrics(metrics)
        ranked_by, metrics = None, {}
        if results is not None:
            metrics = {row.id: finite(row.metrics) for row in results.rows}
            if results.metric in results.directions:
                better = results.higher_is_better
                ranked_by = dict(metric=results.metric, higher_is_better=better)
        for stitch in stitches:
            stitch['files'] = [self._entry(file, weights) for file in stitch['files']]
            stitch['metrics'] = metrics.get(stitch['id'], {})
        manifest = dict(
            version=VERSION,
            **describe_graphs(self.cfg, self.model, self.size, files[-1].wanted),
            ranked_by=ranked_by,
            compared_on=self.compared_on,
            space=self.space.fingerprint,
            largest_flops=max(self.costs.column('flops').values()),
            anchors=anchors_of(self.cfg, self.model),
            stitches=stitches,
            weights=weights,
            machine=machine(),
        )
        return json.loads(json.dumps(manifest))

    def _write_stitch(
        self, stitch_id: int, request: ExportRequest, folder: Path
    ) -> dict:
        """Return a stitch's entry in the manifest, with its written files."""
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        wanted = predict_loaded(self.cfg, self.model, self.images)
        number = 1 if self.ranked else NUM_IMAGES
        build = StitchBuild(cfg, single, self.graph_images[:number])
        kinds = [*product(request.formats, request.precisions)]
        files, left_out, metrics = [], [], {}
        while kinds:
            written = []
            for name, precision in kinds:  # stitch_28_176x240_int8.onnx
                format = FORMATS[name]
                about = f'_{size_name(self.size)}_{precision}' * format.is_graph
                path = folder / f'stitch_{stitch_id}{about}{format.suffix}'
                format.write(build, path, precision)
                written.append(Written(name, precision, path, wanted))
            if request.verify_on:
                place = f'stitch {stitch_id} on {request.verify_on}'
                print_log(f'Evaluating {place}', logger='current')
                metrics = evaluate(self.cfg, single, written, self.steps, request)
            kept = [
                file
                for file in written
                if not loses(stitch_id, file, self.size, request)
            ]
            for file in written:
                if file not in kept:
                    about = dict(format=file.format, precision=file.precision)
                    left_out.append(about | dict(verified=file.verified))
                    file.path.unlink()
            files += kept
            left = {f.format for f in written} - {f.format for f in kept}
            kinds = [(name, 'fp32') for name in sorted(left)]
        stitch, cost = self.space[stitch_id], self.costs[stitch_id]
        names, branches = self.space.anchor_names, self.space.branches(stitch)
        # In an elastic network, segments are ranges of branches, not of blocks.
        run = stitch.segments if branches is None else ()
        return dict(
            id=stitch_id,
            kind=stitch.kind,
            route=self.space.describe(stitch),
            flops=cost.flops,
            params=cost.params,
            files=files,
            left_out=left_out,
            segments=[[names[a], begin, end] for a, begin, end in run if begin < end],
            branches=branches,
            scale=stitch.scale,
            metrics=metrics,
        )

    def _entry(self, file: Written, shared: dict | None) -> dict:
        """Compare a file with its stitch, name it, and return its manifest entry."""
        format, got = FORMATS[file.format], file.open()(self.graph_images)
        bound = format.tolerance if file.precision == 'fp32' else math.inf
        apart = check_parity(file.path.name, got, file.wanted, bound, self.ranked)
        about, weights = describe_file(file.path), None
        if format.is_graph:
            about['name'] = name_by_content(file.path.name, about['sha256'])
            file.path.rename(file.path.with_name(about['name']))
            weights = shared
        return dict(
            format=file.format,
            precision=file.precision,
            **about,
            max_difference=apart,
            weights=weights,
            verified=file.verified,
        )
