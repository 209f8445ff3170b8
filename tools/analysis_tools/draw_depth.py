"""Draw test images of a depth model with their truth and the depth of some stitches.

``tools/analysis_tools/draw_depth.py CONFIG CHECKPOINT --stitch-id 0,5,1 --out FILE``
"""

import argparse

import numpy as np
import torch
from mmengine.registry import DATASETS

from snnet_mm.apis import cost_table, find_stitched_backbone, init_model, set_stitch
from snnet_mm.datasets import check_data_folders
from snnet_mm.evaluation import plot_images
from snnet_mm.stitching import select_stitches
from snnet_mm.utils import ToolParser, check, load_config, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config of a stitched depth model')
    parser.add_argument('checkpoint', help='checkpoint file, read weights-only')
    what = "stitches to draw: 'anchors' or ids"
    parser.add_argument('--stitch-id', default='anchors', help=what)
    what = 'places in the test set'
    parser.add_argument('--images', type=int, nargs='+', default=[0], help=what)
    parser.add_argument('--out', required=True, help='picture to write')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args.config)
    check_data_folders(cfg.get('test_dataloader'), 'test_dataloader')
    model = init_model(cfg, args.checkpoint, device='cpu')
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    for i in args.images:
        check(0 <= i < len(dataset), '--images', i, f'0 to {len(dataset) - 1}')
    found = dataset[args.images[0]]['data_samples'].keys()
    check('gt_depth_map' in found, 'test_dataloader.dataset', found, 'a set with depth')
    stitches = select_stitches(find_stitched_backbone(model).space, args.stitch_id)
    costs = cost_table(model, cfg.test_cfg.get('input_size'))
    rows = [draw(model, dataset[i], stitches) for i in args.images]
    titles = [f'stitch {i}, {costs[i].flops / 1e9:.2f} GFLOPs' for i in stitches]
    farthest = max(truth.max() for _, truth, *_ in rows)
    plot_images(rows, ['image', 'truth', *titles], args.out, farthest)
    print(f'Wrote {args.out}')


@torch.no_grad()
def draw(model, item: dict, stitches: list[int]) -> list[np.ndarray]:
    """A test image, its truth and the depths that some stitches predict."""
    sample, predictions = item['data_samples'], []
    for stitch_id in stitches:
        set_stitch(model, stitch_id)
        batch = dict(inputs=[item['inputs']], data_samples=[sample.clone()])
        (result,) = model.test_step(batch)
        predictions.append(result.pred_depth_map.data[0].numpy())
    image = item['inputs'].numpy().transpose(1, 2, 0)[..., ::-1]
    truth = sample.gt_depth_map.data[0].numpy()
    return [image, truth, *predictions]


if __name__ == '__main__':
    run_command(main)
