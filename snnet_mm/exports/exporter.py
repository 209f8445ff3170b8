"""Export of one stitch, or of a bundle of several stitches with shared weights."""

import hashlib
import json
import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import init_default_scope
from torch import nn

from snnet_mm.anchors import image_channels
from snnet_mm.costs import cost_table, preprocessed_size, size_name, window_of
from snnet_mm.costs.parts import empty_images
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.runtime.bundle import describe_file, files_of, name_by_content
from snnet_mm.runtime.manifest import DIGITS, MANIFEST, VERSION
from snnet_mm.stitching import Selection, StitchTable
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import (
    check,
    check_writable,
    folder_lock,
    machine,
    write_json,
)
from snnet_mm.utils.configs import graph_order

from .comparison import (
    check_parity,
    predict_loaded,
    sample_images,
    size_of_test_images,
)
from .description import check_windows, describe_graphs
from .formats import FORMATS, PRECISIONS, Written
from .graph import StitchBuild
from .request import ExportRequest
from .shared_weights import share_weights
from .single import anchors_of, single_stitch
from .verification import PYTORCH, Verified, judge, results_by_kind, verify

NUM_IMAGES = 2  # of a comparison; tracing any batch size needs two or more
UNFINISHED = '.export-'  # prefix of folders of unfinished exports
GRAPH_FILE = re.compile(  # graphs and their weights
    rf'(stitch|weights)\w*-[0-9a-f]{{{DIGITS}}}'
    r'\.(onnx|safetensors|xml|bin)'
)
RESULTS = 'stitches_{}_{}.json'  # of a format in a precision
MEASURED = {RESULTS.format(*kind) for kind in product((PYTORCH, *FORMATS), PRECISIONS)}


class _Exported(NamedTuple):
    """The files of a stitch, and the predictions with which they are compared.

    ``files`` have their ``verified`` entry in the manifest, or None. ``scores`` are of
    each format and precision.
    """

    id: int
    wanted: Predictions
    files: dict[Written, dict | None]
    left_out: list[dict]
    scores: dict[tuple[str, str], Verified]


def on_cpu(model: nn.Module) -> nn.Module:
    """Return a model, or its copy on the CPU, where graphs are traced and compared."""
    device = next(model.parameters()).device
    return model if device.type == 'cpu' else deepcopy(model).cpu()


class StitchExporter:
    """Exports stitches of one model, then reopens every file to compare predictions.

    Predictions are compared with the stitched model's, on test images or, without a
    test set, on noise. After an error, no new file is left. All export methods return
    the content of ``manifest.json``; see docs/how_to/export.md. Graphs take images of
    ``size``, by default the size of the model's sliding windows, ``input_size`` in the
    config's ``test_cfg``, or the size of the data preprocessor. Checkpoints need no
    size: if it is unknown, costs are counted at :func:`size_of_test_images`.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        out_dir: str | os.PathLike,
        size: Sequence[int] | None = None,
        results: StitchTable | None = None,
    ) -> None:
        model = on_cpu(model)
        self.cfg, self.model, self.results = cfg, model, results
        # Another model may have been loaded since.
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        model.eval()
        self.out_dir = check_writable(out_dir, 'option: --out')
        self.space = find_stitched_backbone(model).space
        self.has_size = True
        size = size or window_of(model) or (cfg.get('test_cfg') or {}).get('input_size')
        try:
            self.size = tuple(size or preprocessed_size(model))
        except ValueError:
            self.size, self.has_size = size_of_test_images(cfg, model), False
        check(min(self.size) > 0, '--shape', size_name(self.size), '1x1 or more')
        check_windows(model, self.size)
        self.costs = cost_table(model, self.size)
        name, wanted = type(model).__name__, 'an image model: docs/how_to/anchors.md'
        of_images = empty_images(model, self.size, batch=1).ndim == 4
        check(of_images, 'model.type', name, wanted)
        if results is not None:
            results.check_space(self.space)
            self.results = results.for_size(self.size)
        # ``images`` are BGR, as mm loads them; graphs may take RGB.
        shape = NUM_IMAGES, image_channels(model), *self.size
        self.images, source = sample_images(cfg, shape)
        self.graph_images = graph_order(cfg, self.images)
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
        formats = [FORMATS[name] for name in request.formats]
        right = self.has_size or not any(format.is_graph for format in formats)
        allowed = 'height and width, or the config key model.data_preprocessor.size'
        check(right, '--shape', None, allowed)
        say = partial(print_log, logger='current')
        ids = request.stitches.select(self.space, self.costs, say)
        if any(format.is_graph for format in formats):
            lacks = task_of(self.model).without_heads(self.model)
            allowed = f'mm alone: {lacks}'
            check(lacks is None, '--format', request.formats, allowed)
        with folder_lock(self.out_dir, '--out', 'exporting'):
            for folder in self.out_dir.glob(f'{UNFINISHED}*'):  # of a killed export
                shutil.rmtree(folder, ignore_errors=True)
            with TemporaryDirectory(prefix=UNFINISHED, dir=self.out_dir) as folder:
                active = find_stitched_backbone(self.model).active_stitch.id
                try:
                    manifest = self._write_all(ids, request, Path(folder))
                finally:
                    set_stitch(self.model, active)
                kept = {path.name for path in Path(folder).iterdir()}
                for name in kept:
                    os.replace(Path(folder, name), self.out_dir / name)
            # Until this write, manifest and graphs of the earlier export stay valid.
            write_json(self.out_dir / MANIFEST, manifest)
            kept |= {file['name'] for file in files_of(manifest)}
            for path in self.out_dir.iterdir():
                written = GRAPH_FILE.fullmatch(path.name) or path.name in MEASURED
                if written and path.name not in kept:
                    path.unlink()
        return manifest

    def _write_all(
        self, ids: Sequence[int], request: ExportRequest, folder: Path
    ) -> dict:
        """Write all files except the manifest to a folder; return the manifest."""
        exported = []
        for n, i in enumerate(ids, start=1):
            print_log(f'Writing stitch {i}, {n} of {len(ids)}', logger='current')
            exported.append(self._write_stitch(i, request, folder))
        weights = _share(exported) if request.bundle else None
        entries = {stitch.id: self._entries(stitch, weights) for stitch in exported}
        results = self.results
        if request.verify_on:
            measured = self._save_results(exported, folder)
            # Without given results, the manifest lists those of PyTorch.
            results = measured if results is None else results
        shapes = exported[-1].wanted
        about = describe_graphs(self.cfg, self.model, self.size, shapes)
        manifest = self._manifest(entries, about, weights, results)
        return json.loads(json.dumps(manifest))

    def _write_stitch(
        self, stitch_id: int, request: ExportRequest, folder: Path
    ) -> _Exported:
        """Write the files of a stitch; evaluate them if requested."""
        cfg, single = single_stitch(self.cfg, self.model, stitch_id)
        wanted = predict_loaded(self.model, self.images)
        number = 1 if task_of(self.model).output_names(self.model) else NUM_IMAGES
        build = StitchBuild(cfg, single, self.graph_images[:number])
        write = partial(self._write, folder, stitch_id, build)
        files = [write(*pair) for pair in product(request.formats, request.precisions)]
        exported = _Exported(stitch_id, wanted, dict.fromkeys(files), [], {})
        if request.verify_on:
            place = f'on {request.verify_on}'
            print_log(f'Evaluating stitch {stitch_id} {place}', logger='current')
            exported = self._evaluate(exported, build, request, write)
        return exported

    def _write(
        self,
        folder: Path,
        stitch_id: int,
        build: StitchBuild,
        kind: str,
        precision: str,
    ) -> Written:
        """Write a file such as ``stitch_28_176x240_int8.onnx``."""
        format = FORMATS[kind]
        about = f'_{size_name(self.size)}_{precision}' if format.is_graph else ''
        path = folder / f'stitch_{stitch_id}{about}{format.suffix}'
        format.write(build, path, precision)
        return Written(kind, precision, path)

    def _evaluate(
        self,
        exported: _Exported,
        build: StitchBuild,
        request: ExportRequest,
        write: Callable[[str, str], Written],
    ) -> _Exported:
        """Evaluate files against their stitch; remove those that lose too much.

        If this leaves a format without a file, an fp32 file is written and evaluated.
        """
        files, kept, left_out, scores = [*exported.files], {}, [], {}
        while files:
            runs = {file.path.name: file.run for file in files}
            data = self.size, request.verify_on, request.limit
            found = verify(self.cfg, deepcopy(build.model), runs, *data)
            scores[PYTORCH, 'fp32'] = found[PYTORCH]
            for file in files:
                verified, is_kept = judge(exported.id, file, found, request)
                if is_kept:
                    kept[file] = verified
                    scores[file.format, file.precision] = found[file.path.name]
                else:
                    about = dict(format=file.format, precision=file.precision)
                    left_out.append(about | dict(verified=verified))
                    for path in file.paths():
                        path.unlink()
            without = {f.format for f in files} - {f.format for f in kept}
            files = [write(kind, 'fp32') for kind in sorted(without)]
        if request.bundle:  # a bundle may have more files than fit in memory
            for file in kept:
                file.close()
        return exported._replace(files=kept, left_out=left_out, scores=scores)

    def _entries(self, exported: _Exported, shared: Mapping | None) -> dict:
        """Compare the files of a stitch; return their entries in the manifest.

        Graphs are renamed by their content.
        """
        entries = []
        for file, verified in exported.files.items():
            format, got = FORMATS[file.format], file.run(self.graph_images)
            file.close()
            ranked = bool(task_of(self.model).output_names(self.model))
            bound = format.tolerance if file.precision == 'fp32' else math.inf
            apart = check_parity(file.path.name, got, exported.wanted, bound, ranked)
            shares = format.shares_weights and shared is not None
            path, *own = file.paths()
            entry = dict(
                format=file.format,
                precision=file.precision,
                **describe_file(path),
                max_difference=apart,
                shares_weights=shares,
                weights=describe_file(*own) if own else shared if shares else None,
                options=dict(format.options.get(file.precision, {})),
                verified=verified,
            )
            if format.is_graph:
                _rename(entry, path.parent)
            entries.append(entry)
        return dict(files=entries, left_out=exported.left_out)

    def _save_results(self, exported: Sequence[_Exported], folder: Path) -> StitchTable:
        """Save results by format and precision; return those of PyTorch."""
        rows = defaultdict(dict)
        for stitch in exported:
            for kind, verified in stitch.scores.items():
                rows[kind][stitch.id] = verified
        by_kind = results_by_kind(self.costs, rows)
        for kind, results in by_kind.items():
            results.save(folder / RESULTS.format(*kind))
        return by_kind[PYTORCH, 'fp32']

    def _manifest(
        self,
        entries: Mapping[int, Mapping],
        about_graphs: Mapping,
        weights: Mapping | None,
        results: StitchTable | None,
    ) -> dict:
        ranked_by, metrics = None, {}
        if results is not None:
            for row in results.rows:  # JSON has no NaN
                found = row.metrics.items()
                metrics[row.id] = {k: v for k, v in found if math.isfinite(v)}
            if results.metric in results.directions:
                better = results.higher_is_better
                ranked_by = dict(metric=results.metric, higher_is_better=better)
        names, stitches = self.space.anchor_names, []
        for i, files in entries.items():
            stitch, cost = self.space[i], self.costs[i]
            about = dict(id=i, kind=stitch.kind, route=self.space.describe(stitch))
            about |= dict(flops=cost.flops, params=cost.params, **files)
            branches = self.space.branches(stitch)
            # Segments of an elastic network count branches.
            run = stitch.segments if branches is None else ()
            run = [[names[a], begin, end] for a, begin, end in run if begin < end]
            about |= dict(segments=run, branches=branches)
            stitches.append(about | dict(metrics=metrics.get(i, {})))
        return dict(
            version=VERSION,
            **about_graphs,
            ranked_by=ranked_by,
            compared_on=self.compared_on,
            space=self.space.fingerprint,
            largest_flops=max(self.costs.column('flops').values()),
            anchors=anchors_of(self.cfg, self.model),
            stitches=stitches,
            weights=weights,
            machine=machine(),
        )


def _share(exported: Sequence[_Exported]) -> dict | None:
    """Let the files of a bundle share weights, in formats that support it."""
    files = (file for stitch in exported for file in stitch.files)
    paths = [file.path for file in files if FORMATS[file.format].shares_weights]
    return share_weights(paths) if paths else None


def _rename(file: dict, folder: Path) -> None:
    """Rename a graph, and weights that it does not share, by their content."""
    parts = [file, *filter(None, (file['weights'],))]
    own = [part for part in parts if not GRAPH_FILE.fullmatch(part['name'])]
    digest = file['sha256']
    if len(own) > 1:
        both = ''.join(part['sha256'] for part in own)
        digest = hashlib.sha256(both.encode()).hexdigest()
    for part in own:
        new = name_by_content(part['name'], digest)
        part['name'] = (folder / part['name']).rename(folder / new).name
