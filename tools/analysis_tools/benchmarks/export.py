"""A bundle of exported stitches: its size, parity, and onnxruntime against PyTorch."""

from pathlib import Path
from tempfile import TemporaryDirectory

from snnet_mm.apis import init_model, set_stitch
from snnet_mm.deploy import StitchExporter, load_export
from snnet_mm.deploy.graph import predict_loaded

from ._common import CAMVID, CONFIGS, in_turn

STITCHES, ROUNDS = (0, 28, 22, 1), 30


def run() -> dict:
    model = init_model(CONFIGS / CAMVID, None, device='cpu')
    with TemporaryDirectory() as folder:
        exporter = StitchExporter(model.cfg, model, folder)
        manifest = exporter.export_bundle(STITCHES)
        image = exporter.graph_images[:1]
        rows = []
        for stitch in manifest['stitches']:
            (file,) = stitch['files']
            graph = load_export(Path(folder) / file['name'])
            set_stitch(model, stitch['id'])
            runs = dict(
                pytorch_ms=lambda: predict_loaded(model, exporter.images[:1]),
                onnxruntime_ms=lambda run=graph: run(image),
            )
            times = in_turn(runs, ROUNDS)
            times['ratio'] = times['pytorch_ms'] / times['onnxruntime_ms']
            row = {key: stitch[key] for key in ('id', 'route', 'flops', 'params')}
            rows.append(row | times | dict(max_difference=file['max_difference']))
    return dict(
        stitches=rows,
        compared_on=manifest['compared_on'],
        shared_weights_mb=manifest['weights']['bytes'] / 1e6,
        weights_of_each_alone_mb=sum(4 * r['params'] for r in rows) / 1e6,
    )
