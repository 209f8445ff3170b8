"""Export of one stitch, or of a bundle of several that share their weights."""

import math
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from snnet_mm.evaluation import cost_table, preprocessed_size
from snnet_mm.evaluation.parts import empty_images
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.runtime.bundle import MANIFEST, VERSION
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import check, check_writable, machine, refusal, write_json

from .description import check_windows, describe_graphs
from .formats import FORMATS
from .graph import (
    Predictions,
    StitchBuild,
    check_parity,
    predict_loaded,
    sample_images,
    takes_rgb,
)
from .heads import FORMAT as HEADS
from .heads import compare_head, write_heads
from .onnx_files import WEIGHTS, OnnxBundle, to_onnx
from .request import ExportRequest
from .single import single_stitch
from .verification import PYTORCH, judge, results_by_kind, verify

NUM_IMAGES = 2  # to compare on; tracing needs two or more
UNFINISHED = '.export-'  # start of the names of folders that are written


class StitchExporter:
    """Writes stitches of one model, then reads every file and compares predictions.

    They are compared with those of the stitched model, on images of the test set
    or on noise where there are none; after an error no file is left. All ways of
    export return what they write to ``manifest.json``; see docs/export.md.
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
        self.cfg, self.model, self.results = cfg, model, results
        model.eval()
        self.out_dir = check_writable(out_dir, 'option: --out')
        self.space = find_stitched_backbone(model).space
        try:
            self.size = tuple(size or preprocessed_size(model))
        except ValueError as error:
            allowed = 'height and width, or the config key model.data_preprocessor.size'
            raise refusal('--shape', size, allowed) from error
        check(min(self.size) > 0, '--shape', self.size, 'positive sizes')
        check_windows(model, self.size)
        self.costs = cost_table(model, self.size)
        name, wanted = type(model).__name__, 'models of images: docs/families.md'
        of_images = empty_images(model, self.size, batch=1).ndim == 4
        check(of_images, 'model.type', name, wanted)
        if results is not None:
            results.check_space(self.space)
        # As mm loads them, in the order of channels BGR, and as graphs take them.
        self.images, source = sample_images(cfg, NUM_IMAGES, self.size)
        self.graph_images = self.images.flip(1) if takes_rgb(cfg) else self.images
        self.compared_on = f'{NUM_IMAGES} {source}'

    def export_stitch(
        self,
        stitch_id: int,
        formats: Sequence[str] = ('mm',),
        precisions: Sequence[str] = ('fp32',),
        **options,
    ) -> dict:
        """Write one stitch and the manifest; see :class:`ExportRequest`."""
        return self.export(ExportRequest((stitch_id,), formats, precisions, **options))

    def export_bundle(
        self,
        stitches: str | Sequence[int],
        formats: Sequence[str] = ('onnx',),
        precisions: Sequence[str] = ('fp32',),
        **options,
    ) -> dict:
        """Write stitches, see :func:`select_stitches`, as graphs that share weights."""
        request = ExportRequest((), formats, precisions, bundle=True, **options)
        # Results may hold latency, which the costs of the model do not.
        costs = self.costs if self.results is None else None
        say = partial(print_log, logger='current')
        ids = select_stitches(self.space, stitches, costs, self.results, say=say)
        return self.export(replace(request, stitches=ids))

    def export(self, request: ExportRequest) -> dict:
        """Write what is asked for, compare every file, then put all in its place."""
        ids, files, weights = request.stitches, {}, None
        if request.shares_weights:
            names = {name for i in ids for *_, name in request.files(i, self.size)}
            self._check_no_other_bundle(names)
        for folder in self.out_dir.glob(f'{UNFINISHED}*'):  # a killed export left it
            shutil.rmtree(folder, ignore_errors=True)
        with TemporaryDirectory(prefix=UNFINISHED, dir=self.out_dir) as folder:
            folder = Path(folder)
            bundle = OnnxBundle(folder)
            wanted = {i: self._write(i, request, folder, bundle) for i in ids}
            own = self.model, self.images, folder, bundle if request.bundle else None
            heads = write_heads(*own) if HEADS in request.formats else []
            if request.shares_weights:
                path = bundle.save()
                weights = dict(name=path.name, bytes=path.stat().st_size)
            for i in ids:
                files[i] = self._compare(i, request, folder, wanted[i], weights)
            results = self.results
            if request.verify_on:  # of the stitches in PyTorch, too
                verified = self._verify(request, folder, files)
                results = verified if results is None else results
            described = self.cfg, self.model, self.size, wanted[ids[0]]
            about = describe_graphs(*described, [file.step for file in heads])
            about['heads'] = [compare_head(file, folder, weights) for file in heads]
            manifest = self._manifest(files, about, weights, results)
            for path in folder.iterdir():
                os.replace(path, self.out_dir / path.name)
        write_json(self.out_dir / MANIFEST, manifest)
        return manifest

    def _check_no_other_bundle(self, names: Collection[str]) -> None:
        """Refuse to replace weights that graphs of another bundle point into."""
        others = sorted(
            p.name for p in self.out_dir.glob('stitch_*.onnx') if p.name not in names
        )
        alone = not others or not (self.out_dir / WEIGHTS).exists()
        allowed = f'a folder without the bundle of {", ".join(others)}, which needs '
        check(alone, '--out', str(self.out_dir), allowed + WEIGHTS)

    def _write(
        self, stitch_id: int, request: ExportRequest, folder: Path, bundle: OnnxBundle
    ) -> Predictions:
        """Write the files of one stitch; return what it predicts."""
        set_stitch(self.model, stitch_id)
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        build = StitchBuild(cfg, single, self.graph_images)
        for kind, precision, name in request.files(stitch_id, self.size):
            if request.bundle and FORMATS[kind].shares_weights:
                bundle.add(name, to_onnx(build, precision))
            else:
                FORMATS[kind].write(build, folder / name, precision)
        return predict_loaded(self.model, self.images)

    def _compare(
        self,
        stitch_id: int,
        request: ExportRequest,
        folder: Path,
        wanted: Predictions,
        shared: dict | None,
    ) -> list[dict]:
        """Open the files of one stitch again; return what the manifest says of them."""
        written = []
        for kind, precision, name in request.files(stitch_id, self.size):
            format, path = FORMATS[kind], folder / name
            options = dict(format.options.get(precision, {}))
            got = format.load(path, options)(self.graph_images)
            difference = check_parity(
                kind, f'stitch {stitch_id}', got, wanted, precision
            )
            about = dict(format=kind, precision=precision, name=name)
            about |= dict(bytes=path.stat().st_size, max_difference=difference)
            shares = request.bundle and format.shares_weights
            about |= dict(shares_weights=shares, weights=shared if shares else None)
            if format.weights_suffix:
                own = path.with_suffix(format.weights_suffix)
                about['weights'] = dict(name=own.name, bytes=own.stat().st_size)
            written.append(about | dict(options=options, verified=None))
        return written

    def _verify(
        self, request: ExportRequest, folder: Path, files: Mapping[int, Sequence[dict]]
    ) -> StitchResults:
        """Evaluate files beside their stitches; put what they lost into ``files``.

        Returns the results of the stitches.
        """
        data, found = (request.verify_on, request.limit), {}
        for i, written in files.items():
            set_stitch(self.model, i)
            _, single = single_stitch(self.cfg, self.model, i)
            runs = {
                f['name']: FORMATS[f['format']].load(folder / f['name'], f['options'])
                for f in written
            }
            rows = verify(self.cfg, single, runs, self.size, *data)
            found.setdefault((PYTORCH, 'fp32'), {})[i] = rows[PYTORCH]
            for file in written:
                file['verified'] = judge(i, file, rows, request)
                kind = file['format'], file['precision']
                found.setdefault(kind, {})[i] = rows[file['name']]
        by_kind = results_by_kind(self.space, self.costs, found)
        for (name, precision), results in by_kind.items():
            results.save(folder / f'stitches_{name}_{precision}.json')
        return by_kind[PYTORCH, 'fp32']

    def _manifest(
        self,
        files: Mapping[int, Sequence[dict]],
        about_graphs: Mapping,
        weights: Mapping | None,
        results: StitchResults | None,
    ) -> dict:
        ranked_by, metrics = None, {}
        if results is not None:
            for row in results.measured:  # JSON has no NaN
                found = row.metrics.items()
                metrics[row.id] = {k: v for k, v in found if math.isfinite(v)}
            if results.metric in results.directions:
                better = results.higher_is_better
                ranked_by = dict(metric=results.metric, higher_is_better=better)
        names, stitches = self.space.anchor_names, []
        for i, written in files.items():
            stitch, cost = self.space[i], self.costs[i]
            about = dict(id=i, kind=stitch.kind, route=self.space.describe(stitch))
            about |= dict(flops=cost.flops, params=cost.params, files=written)
            about |= dict(segments=[[names[s.anchor], *s[1:]] for s in stitch.segments])
            stitches.append(about | dict(metrics=metrics.get(i, {})))
        return dict(
            version=VERSION,
            **about_graphs,
            ranked_by=ranked_by,
            compared_on=self.compared_on,
            space=self.space.fingerprint,
            anchors=[
                dict(name=names[a], depth=depth)
                for a, depth in enumerate(self.space.depths)
            ],
            stitches=stitches,
            weights=weights,
            machine=machine(),
        )
