"""Draw predictions of any stitches: ``tools/image_demo.py IMG CONFIG CKPT``."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product
from pathlib import Path

from rich.progress import track

from snnet_mm.stitching import Selection
from snnet_mm.utils import (
    ToolParser,
    atomic_path,
    check,
    check_file,
    check_writable,
    run_command,
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser('Predict images with one or more stitches and draw the results')
    add = parser.add_argument
    add('img', help='image file, or a folder of images')
    add('config', help='config file')
    add('checkpoint', help='checkpoint file')
    what = 'output folder (default: %(default)s)'
    add('--out-dir', type=Path, default=Path('work_dirs/image_demo'), help=what)
    what = 'also draw all: a row for each image, a column for each stitch'
    add('--sheet', type=Path, help=what)
    what = """stitches to run: 'all', 'anchors' or ids such as 0,5,12; with --results
        also 'pareto' or budgets such as 60G; one picture each (default: the whole
        network, or the slow anchor)"""
    add('--stitch-id', help=what)
    what = """stitches.json of a test or stitch_scores.json of a training, to choose
        stitches by"""
    add('--results', help=what)
    add('--device', help='device (default: cuda if available, else cpu)')
    what = 'opacity of the prediction, in (0, 1] (default: %(default)s)'
    add('--opacity', type=float, default=0.5, help=what)
    what = """write class names, and scores of detections (default: yes for detection,
        no for segmentation)"""
    add('--with-labels', action=argparse.BooleanOptionalAction, help=what)
    what = 'draw detections with at least this score (default: %(default)s)'
    add('--score-thr', type=float, default=0.3, help=what)
    args = parser.parse_args()
    check(0 < args.opacity <= 1, '--opacity', args.opacity, 'a number above 0, up to 1')
    return args


def main() -> None:
    args = parse_args()

    import cv2

    from snnet_mm.costs import cost_table
    from snnet_mm.evaluation import add_legend, plot_images
    from snnet_mm.inference.init_inferencer import (
        draw_prediction,
        init_inferencer,
        list_images,
    )
    from snnet_mm.inference.init_model import init_model
    from snnet_mm.models import find_stitched_backbone, set_stitch
    from snnet_mm.utils import load_config

    files = list_images(args.img)
    stems = Counter(Path(file).stem for file in files)
    check_file(args.checkpoint, 'argument: checkpoint')
    check_writable(args.out_dir, 'option: --out-dir')
    if args.sheet is not None:
        check_writable(args.sheet.parent, 'option: --sheet')
    cfg = load_config(args.config)
    selection = args.stitch_id and Selection(args.stitch_id, args.results)
    model = init_model(cfg, args.checkpoint, device=args.device)
    ids, titles = (None,), ['']  # the active stitch
    if selection:
        ids = selection.select(find_stitched_backbone(model).space)
        costs = cost_table(model, (cfg.get('test_cfg') or {}).get('input_size'))
        titles = [f'stitch {i}, {costs[i].flops / 1e9:.2f} GFLOPs' for i in ids]
    inferencer, legend = init_inferencer(model), {}
    rows = {file: [] for file in files}
    for stitch_id, file in track([*product(ids, files)], 'Painting'):
        name = Path(file).stem if stems[Path(file).stem] == 1 else Path(file).name
        if stitch_id is not None:
            set_stitch(model, stitch_id)
            name = f'{name}_stitch{stitch_id}'
        classes = {}
        painted = draw_prediction(
            inferencer, file, args.opacity, args.with_labels, args.score_thr, classes
        )
        with atomic_path(args.out_dir / f'{name}.png') as temporary:
            cv2.imwrite(str(temporary), add_legend(painted, classes))
        rows[file].append(painted[..., ::-1])
        legend |= classes
    print(f'Wrote {len(files) * len(ids)} to {args.out_dir}')
    if args.sheet is not None:
        plot_images([*rows.values()], titles, args.sheet, legend=legend)
        print(f'Wrote {args.sheet}')


if __name__ == '__main__':
    run_command(main)
