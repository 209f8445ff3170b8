"""Paint predictions of any stitches: ``tools/image_demo.py IMG CONFIG CKPT``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from torch import nn

from snnet_mm.apis import (
    cost_table,
    find_stitched_backbone,
    init_model,
    init_painter,
    list_images,
    set_stitch,
)
from snnet_mm.evaluation import plot_sheet
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import atomic_path


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Predict images and paint the results')
    parser.add_argument('img', help='image file, or a folder of images')
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out-file', type=Path, help='the picture, if it is only one')
    parser.add_argument(
        '--out-dir',
        type=Path,
        default=Path('work_dirs/image_demo'),
        help='folder of the pictures (default: %(default)s)',
    )
    parser.add_argument(
        '--sheet',
        type=Path,
        help='one more picture: a row for each image, a column for each stitch',
    )
    parser.add_argument(
        '--stitch-id',
        help="stitches to run: 'all', 'anchors', ids such as 0,5,12, or by --results "
        "'pareto' and budgets such as 60G; one picture each (default: the slow anchor)",
    )
    parser.add_argument(
        '--results',
        help='stitches.json of a test or stitch_scores.json of a training, to choose '
        'stitches by',
    )
    parser.add_argument('--device', help='device (default: the best there is)')
    parser.add_argument(
        '--opacity',
        type=float,
        default=0.5,
        help='opacity of the painted prediction, above 0 to 1 (default: %(default)s)',
    )
    parser.add_argument(
        '--with-labels',
        action=argparse.BooleanOptionalAction,
        help='write the names of classes, with scores of detections (default: of '
        'detections, but not on segmentations)',
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        help='least score of a detection to be painted (default: %(default)s)',
    )
    args = parser.parse_args()
    if not 0 < args.opacity <= 1:
        raise ValueError(f'--opacity {args.opacity}: allowed is above 0 to 1')
    return args


def read_image(path: str) -> np.ndarray:
    """The BGR image (H, W, 3) of a file.

    Raises:
        ValueError: If it is none.
    """
    image = cv2.imread(path)
    if image is None:
        raise ValueError(f'{path} cannot be read as an image')
    return image


def main() -> None:
    args = parse_args()
    images = list_images(args.img)
    model = init_model(args.config, args.checkpoint, device=args.device)
    ids = (None,)
    if args.stitch_id is not None:
        space, found = find_stitched_backbone(model).space, None
        if args.results is not None:
            found = StitchResults.read(args.results, space)
        ids = select_stitches(space, args.stitch_id, results=found)
    if args.out_file is not None and len(images) * len(ids) > 1:
        raise ValueError(
            f'--out-file {args.out_file} is one picture; {len(images)} images by '
            f'{len(ids)} stitches need --out-dir'
        )
    paint = init_painter(model, args.opacity, args.with_labels, args.score_thr)
    rows = {str(image): [] for image in images}
    for stitch_id in ids:
        suffix = ''
        if stitch_id is not None:
            set_stitch(model, stitch_id)
            suffix = f'_stitch{stitch_id}'
        for image in images:
            name = f'{Path(image).stem}{suffix}.png'
            out_file = args.out_file or args.out_dir / name
            painted = paint(read_image(image))
            with atomic_path(out_file) as temporary:
                if not cv2.imwrite(str(temporary), painted):
                    raise ValueError(f'{out_file} cannot be written as a picture')
            print(out_file)
            rows[str(image)].append(painted[..., ::-1])
    if args.sheet is not None:
        plot_sheet(list(rows.values()), titles_of(model, ids), args.sheet)
        print(args.sheet)


def titles_of(model: nn.Module, ids: Sequence[int | None]) -> list[str]:
    """Names of stitches and their FLOPs, where there are stitches."""
    if ids == (None,):
        return ['']
    costs = cost_table(model, model.cfg.test_cfg.get('input_size'))
    return [f'stitch {i}, {costs[i].flops / 1e9:.2f} GFLOPs' for i in ids]


if __name__ == '__main__':
    main()
