"""Export stitches: ``tools/export_stitch.py CONFIG CKPT --stitch-id N --out DIR``.

A single id becomes a standalone model. Several ids, a keyword or budgets become a
bundle of ONNX graphs that share one weights file.
"""

import argparse
from pathlib import Path

from rich.table import Table

from snnet_mm.stitching import Selection
from snnet_mm.utils import (
    ToolParser,
    check_file,
    parse_size,
    run_command,
    tool_command,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Export sub-networks (stitches) of a model')
    add = parser.add_argument
    add('config', help='config of a stitched or elastic model')
    add('checkpoint', help='its checkpoint')
    what = """one id for a standalone model; for a bundle of several: 'all', 'anchors',
        'pareto' (the front of --results), ids such as 0,5,12, or budgets such as
        60G,120G"""
    add('--stitch-id', required=True, help=what)
    add('--out', type=Path, required=True, help='output folder')
    what = """mm (config, checkpoint; default for one id), onnx (default for a bundle),
        or both"""
    add('--format', nargs='+', help=what)
    what = """some of fp32 (default), fp16 (for GPUs) and int8, which quantises the
        linear layers of the backbone, and of a ViT in the head (EoMT)"""
    add('--precision', nargs='+', default=['fp32'], help=what)
    what = """evaluate every file and its stitch in PyTorch on this data, and write the
        metric and milliseconds of both to the manifest"""
    add('--verify-on', choices=('val', 'test'), help=what)
    add('--limit', type=int, help='evaluate on this many evenly spaced images')
    what = """with --verify-on: largest accepted loss of a file, in points of the metric
        (mIoU, AP) or percent of an error (RMSE); a file that loses more is left out,
        and if none remains, one in fp32 is written (default: %(default)s)"""
    add('--tolerance', type=float, default=0.5, help=what)
    what = """input size of graphs (default: the size of sliding windows, else
        test_cfg.input_size, else the data preprocessor's size)"""
    add('--shape', metavar='HxW', help=what)
    what = 'stitches.json of a test, to rank stitches by; copied to the manifest'
    add('--results', help=what)
    parser.add_cfg_options()
    args = parser.parse_args()
    args.single = args.stitch_id.isdecimal()
    args.format = args.format or ['mm' if args.single else 'onnx']
    args.shape = args.shape and parse_size(args.shape, '--shape')
    return args


def main() -> None:
    args = parse_args()

    from snnet_mm.exports import ExportRequest, StitchExporter
    from snnet_mm.models.init_model import init_model
    from snnet_mm.utils import load_config

    cfg = load_config(args.config, args.cfg_options)
    check_file(args.checkpoint, 'argument: checkpoint')
    selection = Selection(args.stitch_id, args.results)
    request = ExportRequest(
        selection,
        args.format,
        args.precision,
        bundle=not args.single,
        verify_on=args.verify_on,
        limit=args.limit,
        tolerance=args.tolerance,
    )
    model = init_model(cfg, args.checkpoint, device='cpu')
    exporter = StitchExporter(cfg, model, args.out, args.shape, selection.table)
    manifest = exporter.export(request)
    report(manifest, args.out, args.tolerance)
    if args.verify_on is None and {*args.precision} != {'fp32'}:
        print('Files in fp16 and int8 are not evaluated: add --verify-on val')


def row_of(stitch: dict, file: dict) -> dict[str, str]:
    """Return the table row of an exported or omitted file, by column name."""
    row = {
        'id': str(stitch['id']),
        'route': stitch['route'],
        'GFLOPs': f'{stitch["flops"] / 1e9:.3g}',
        'params (M)': f'{stitch["params"] / 1e6:.2f}',
        'file': f'left out: {file["format"]} {file["precision"]}',
        'MB': '',
    }
    if 'name' in file:
        row |= {'file': file['name'], 'MB': f'{file["bytes"] / 1e6:.2f}'}
    found = file['verified']
    if found is None:
        return row | {'difference': f'{file["max_difference"]:.1e}'}
    for name, key in {found['metric']: 'value', 'PyTorch': 'pytorch'}.items():
        row[name] = 'NaN' if found[key] is None else f'{found[key]:.4g}'
    interval = found['interval'] or ()
    row['difference, 95 % CI'] = ' to '.join(f'{value:+.2g}' for value in interval)
    return row | {
        'ms': f'{found["ms"]:.1f}',
        'PyTorch ms': f'{found["pytorch_ms"]:.1f}',
    }


def report(manifest: dict, out: Path, tolerance: float) -> None:
    """Print a table of all files, including omitted ones, and the next command."""
    from snnet_mm.evaluation import wide_console
    from snnet_mm.exports.verification import tolerance_for

    stitches, compared_on = manifest['stitches'], manifest['compared_on']
    table = Table(title=f'Compared with the stitched model on {compared_on}')
    device = manifest['machine']
    rows = [row_of(s, file) for s in stitches for file in s['files'] + s['left_out']]
    names = max(rows, key=len)
    if 'ms' in names:
        table.caption = 'ms: from an image to its prediction, in PyTorch without the '
        table.caption += f'pipeline; {device["threads"]} CPU thread(s), '
        table.caption += device['processor']
    for name in names:
        justify = 'left' if name in ('route', 'file') else 'right'
        # File names must not wrap, because users copy them from the table.
        table.add_column(name, justify=justify, overflow='fold', no_wrap=name == 'file')
    for row in rows:
        table.add_row(*(row.get(name, '') for name in names))
    console = wide_console()
    console.print(table)
    if weights := manifest['weights']:
        console.print(f'{weights["name"]}: {weights["bytes"] / 1e6:.2f} MB')
    left = [file['verified']['lost'] for s in stitches for file in s['left_out']]
    if left:
        known = None not in left
        words = f'; --tolerance {tolerance_for(max(left))} keeps all' if known else ''
        words = f'Left out: {len(left)}, by more than {tolerance} worse{words}'
        console.print(words, soft_wrap=True)
    console.print(f'Wrote manifest.json and these files to {out}', soft_wrap=True)
    formats = {file['format'] for s in stitches for file in s['files']}
    if 'onnx' in formats:
        print(f'Next: {tool_command("serve.py", out)}')


if __name__ == '__main__':
    run_command(main)
