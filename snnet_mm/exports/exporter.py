"""Export of one stitch, or of a bundle of several that share their weights."""

import hashlib
import json
import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

from snnet_mm.costs import cost_table, preprocessed_size, size_name
from snnet_mm.costs.parts import empty_images
from snnet_mm.models import find_stitched_backbone
from snnet_mm.runtime.bundle import describe_file, files_of, name_by_content
from snnet_mm.runtime.manifest import DIGITS, MANIFEST, VERSION, check_manifest
from snnet_mm.stitching import Selection, StitchResults
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import (
    check,
    check_writable,
    folder_lock,
    machine,
    write_json,
)
from snnet_mm.utils.configs import takes_rgb

from .comparison import (
    check_parity,
    predict_loaded,
    sample_images,
    size_of_test_images,
)
from .description import check_windows, describe_graphs
from .formats import FORMATS, Run
from .graph import StitchBuild
from .onnx_files import OnnxBundle
from .request import PYTORCH, ExportRequest, judge
from .single import anchors_of, single_stitch
from .verification import Verified, results_by_kind, verify

NUM_IMAGES = 2  # to compare on; tracing needs two or more
UNFINISHED = '.export-'  # start of the names of folders that are written
GRAPH_FILE = re.compile(  # or its weights
    rf'(stitch|weights)\w*-[0-9a-f]{{{DIGITS}}}'
    r'\.(onnx|safetensors|xml|bin|pt2)'
)


class StitchExporter:
    """Writes stitches of one model, then reads every file and compares predictions.

    Predictions are compared with the stitched model's, on images of the test set
    or on noise where there are none; after an error no file is left. All ways of
    export return what they write to ``manifest.json``; see docs/how_to/export.md.
    Graphs take images of ``size``, by default that of the model's data preprocessor.
    Checkpoints have no size: without one, costs are of the first test image's.
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
        self.has_size = True
        try:
            self.size = tuple(size or preprocessed_size(model))
        except ValueError:
            self.size, self.has_size = size_of_test_images(cfg, model), False
        check(min(self.size) > 0, '--shape', size_name(self.size), '1x1 or more')
        check_windows(model, self.size)
        self.costs = cost_table(model, self.size)
        name, wanted = type(model).__name__, 'models of images: docs/how_to/families.md'
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
        chosen = Selection(stitch_id)
        return self.export(ExportRequest(chosen, formats, precisions, **options))

    def export_bundle(
        self,
        stitches: str | Sequence[int],
        formats: Sequence[str] = ('onnx',),
        precisions: Sequence[str] = ('fp32',),
        **options,
    ) -> dict:
        """Write stitches, see :class:`Selection`, as graphs that share weights."""
        chosen = Selection(stitches, self.results)
        options |= dict(bundle=True)
        return self.export(ExportRequest(chosen, formats, precisions, **options))

    def export(self, request: ExportRequest) -> dict:
        """Write what is asked for, compare every file, then put all in its place.

        Evaluated files that lose more than the tolerance are left out; a stitch of
        which a format has none left is written in fp32.
        """
        formats = [FORMATS[name] for name in request.formats]
        right = self.has_size or not any(format.is_graph for format in formats)
        allowed = 'height and width, or the config key model.data_preprocessor.size'
        check(right, '--shape', None, allowed)
        say = partial(print_log, logger='current')
        ids = request.stitches.select(self.space, self.costs, say)
        if any(format.is_graph for format in formats):
            lacks = task_of(self.model).without_heads(self.model, request.formats)
            allowed = f'mm and safetensors; {lacks}'
            check(lacks is None, '--format', request.formats, allowed)
        with folder_lock(self.out_dir, '--out', 'exporting'):
            for folder in self.out_dir.glob(f'{UNFINISHED}*'):  # a killed export's
                shutil.rmtree(folder, ignore_errors=True)
            with TemporaryDirectory(prefix=UNFINISHED, dir=self.out_dir) as folder:
                manifest = self._write_all(ids, request, Path(folder))
                for path in Path(folder).iterdir():
                    os.replace(path, self.out_dir / path.name)
            # Until here the manifest and the graphs of the earlier export are there.
            write_json(self.out_dir / MANIFEST, manifest)
            kept = {file['name'] for file in files_of(manifest)}
            for path in self.out_dir.iterdir():
                if GRAPH_FILE.fullmatch(path.name) and path.name not in kept:
                    path.unlink()
        return manifest

    def _write_all(
        self, ids: Sequence[int], request: ExportRequest, folder: Path
    ) -> dict:
        """Write all files but the manifest into a folder; return the manifest."""
        bundle, weights = OnnxBundle(folder), None
        own = folder, bundle if request.bundle else None
        pairs = [*product(request.formats, request.precisions)]
        names, wanted = {}, {}
        for n, i in enumerate(ids, start=1):
            print_log(f'Writing stitch {i}, {n} of {len(ids)}', logger='current')
            names[i], wanted[i] = self._write(i, pairs, *own)
        judged, rows, left_out = {}, defaultdict(dict), {i: [] for i in ids}
        lost = True
        while lost:
            if bundle.graphs:
                weights = describe_file(bundle.save())
            compared = folder, weights if request.bundle else None
            files, lost = {}, []
            for i in ids:
                files[i], runs = self._compare(names[i], wanted[i], *compared)
                if request.verify_on:
                    lost += self._verify(i, files[i], runs, request, judged, rows)
            for i, file in lost:
                kind, precision, name = (
                    file[key] for key in ('format', 'precision', 'name')
                )
                about = dict(format=kind, precision=precision)
                left_out[i].append(about | dict(verified=file['verified']))
                del rows[kind, precision][i]
                names[i].remove((kind, precision, name))
                if file['shares_weights']:
                    bundle.drop(name)
                else:
                    for part in filter(None, (file, file['weights'])):
                        (folder / part['name']).unlink()
                if kind not in [name for name, *_ in names[i]]:
                    names[i] += self._write(i, [(kind, 'fp32')], *own)[0]
        results = self.results
        if request.verify_on:
            by_kind = results_by_kind(self.space, self.costs, rows)
            for (name, precision), found in by_kind.items():
                found.save(folder / f'stitches_{name}_{precision}.json')
            # Those of the stitches in PyTorch.
            results = by_kind[PYTORCH, 'fp32'] if results is None else results
        described = self.cfg, self.model, self.size, wanted[ids[0]]
        about = describe_graphs(*described)
        graphs = (f for i in files for f in files[i] if FORMATS[f['format']].is_graph)
        for file in graphs:
            _rename(file, folder)
        manifest = self._manifest(files, left_out, about, weights, results)
        manifest = json.loads(json.dumps(manifest))
        check_manifest(manifest, self.out_dir / MANIFEST)
        return manifest

    def _write(
        self,
        stitch_id: int,
        pairs: Sequence[tuple[str, str]],
        folder: Path,
        bundle: OnnxBundle | None,
    ) -> tuple[list[tuple[str, str, str]], Predictions]:
        """Write one stitch in pairs of a format and a precision.

        Returns format, precision and name of every file, such as
        ``stitch_28_176x240_int8.onnx``, and what the stitch predicts.
        """
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        number = 1 if task_of(self.model).takes_one(self.model) else NUM_IMAGES
        build, files = StitchBuild(cfg, single, self.graph_images[:number]), []
        for kind, precision in pairs:
            format = FORMATS[kind]
            about = f'_{size_name(self.size)}_{precision}' if format.is_graph else ''
            name = f'stitch_{stitch_id}{about}{format.suffix}'
            format.write(build, folder / name, precision, bundle)
            files.append((kind, precision, name))
        return files, predict_loaded(self.model, self.images)

    def _compare(
        self,
        files: Sequence[tuple[str, str, str]],
        wanted: Predictions,
        folder: Path,
        shared: Mapping | None,
    ) -> tuple[list[dict], dict[str, Run]]:
        """Open the files of one stitch again.

        Returns what the manifest says of them, and the opened files by name.
        """
        written, runs = [], {}
        for kind, precision, name in files:
            format, path = FORMATS[kind], folder / name
            options = dict(format.options.get(precision, {}))
            runs[name] = format.load(path, options)
            got = runs[name](self.graph_images)
            reordered = task_of(self.model).reordered(self.model)
            bound = format.tolerance if precision == 'fp32' else math.inf
            difference = check_parity(name, got, wanted, bound, reordered)
            shares = format.shares_weights and shared is not None
            about = dict(format=kind, precision=precision, **describe_file(path))
            about |= dict(max_difference=difference, shares_weights=shares)
            about['weights'] = shared if shares else None
            if format.weights_suffix:
                own = path.with_suffix(format.weights_suffix)
                about['weights'] = describe_file(own)
            written.append(about | dict(options=options, verified=None))
        return written, runs

    def _verify(
        self,
        stitch_id: int,
        files: Sequence[dict],
        runs: Mapping[str, Run],
        request: ExportRequest,
        judged: dict[str, tuple[dict, bool]],
        rows: dict[tuple[str, str], dict[int, Verified]],
    ) -> list[tuple[int, dict]]:
        """Evaluate files beside their stitch; return those that lost too much.

        What was ``judged`` before, by name, stays. ``rows`` get the metrics by format,
        precision and stitch id, and ``files`` what the manifest says of it.
        """
        new = {name: run for name, run in runs.items() if name not in judged}
        if new:
            place = f'on {request.verify_on}'
            print_log(f'Evaluating stitch {stitch_id} {place}', logger='current')
            _, single = single_stitch(self.cfg, self.model, stitch_id)
            data = self.size, request.verify_on, request.limit
            found = verify(self.cfg, single, new, *data)
            rows[PYTORCH, 'fp32'][stitch_id] = found[PYTORCH]
            for file in (file for file in files if file['name'] in new):
                judged[file['name']] = judge(stitch_id, file, found, request)
                kind = file['format'], file['precision']
                rows[kind][stitch_id] = found[file['name']]
        lost = []
        for file in files:
            file['verified'], kept = judged[file['name']]
            if not kept:
                lost.append((stitch_id, file))
        return lost

    def _manifest(
        self,
        files: Mapping[int, Sequence[dict]],
        left_out: Mapping[int, Sequence[dict]],
        about_graphs: Mapping,
        weights: Mapping | None,
        results: StitchResults | None,
    ) -> dict:
        ranked_by, metrics = None, {}
        if results is not None:
            for row in results.stitches:  # JSON has no NaN
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
            about['left_out'] = left_out[i]
            run = (s for s in stitch.segments if s.begin < s.end)
            about |= dict(segments=[[names[a], *blocks] for a, *blocks in run])
            stitches.append(about | dict(metrics=metrics.get(i, {})))
        return dict(
            version=VERSION,
            **about_graphs,
            ranked_by=ranked_by,
            compared_on=self.compared_on,
            space=self.space.fingerprint,
            anchors=anchors_of(self.cfg, self.model),
            stitches=stitches,
            weights=weights,
            machine=machine(),
        )


def _rename(file: dict, folder: Path) -> None:
    """Name a graph, and weights that it has alone, by their content."""
    parts = [file, *filter(None, (file['weights'],))]
    own = [part for part in parts if not GRAPH_FILE.fullmatch(part['name'])]
    digest = file['sha256']
    if len(own) > 1:
        both = ''.join(part['sha256'] for part in own)
        digest = hashlib.sha256(both.encode()).hexdigest()
    for part in own:
        new = name_by_content(part['name'], digest)
        part['name'] = (folder / part['name']).rename(folder / new).name
