"""Compare chains with other ways without training: ``without_training.py CFG CKPT``.

The model is an elastic segmentation model whose network is a PlainViT. Methods:

- ``chains``: the network and its budgets, to which all others are compared;
- ``one-map``: one affine map for one run of blocks (TOAST, ReplaceMe);
- ``tome``: similar tokens merge in early blocks (ToMe), and are copied before the head;
- ``expedit``: tokens are clustered after a block and reconstructed before the head;
- ``sizes``: smaller images, for the network and for its chains.

Maps are fitted on 64 training images; on 24 others, the blocks that are replaced, or in
or after which tokens merge, have least divergence from the network's predictions. FLOPs
are without matching and clustering (below 2 %). ``--work-dir`` keeps the results of
every method. The table of all that are there ends with a cascade: a chain, and the
network for the images of highest entropy.
"""

import argparse
import json
from pathlib import Path

from snnet_mm.utils import ToolParser, run_command

METHODS = 'chains', 'one-map', 'tome', 'expedit', 'sizes'


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', help='config of an elastic segmentation model')
    add('checkpoint', help='its checkpoint')
    what = 'methods to test now (default: all)'
    add('--methods', nargs='*', default=[*METHODS], choices=METHODS, help=what)
    what = 'folder for the results of every method, and table.json'
    add('--work-dir', type=Path, default=Path('work_dirs/without_training'), help=what)
    add('--every', type=int, default=1, help='test every n-th image (default: 1)')
    parser.add_cfg_options()
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    import numpy as np
    import torch
    from training_free import Comparison, table, tested

    from snnet_mm.inference.init_model import init_model

    torch.set_grad_enabled(False)
    options = dict(device='cpu', cfg_options=args.cfg_options)
    net = Comparison(init_model(args.config, args.checkpoint, **options))
    args.work_dir.mkdir(parents=True, exist_ok=True)
    for method in args.methods:
        variants = [*getattr(net, method.replace('-', '_'))()]
        found = tested(net, variants, args.every)
        np.savez_compressed(args.work_dir / f'{method}.npz', **found)
    files = [args.work_dir / f'{method}.npz' for method in METHODS]
    rows = table({f.stem: dict(np.load(f)) for f in files if f.is_file()})
    for row in rows:
        print(*row.values(), sep='  ')
    lines = ',\n'.join(map(json.dumps, rows))
    (args.work_dir / 'table.json').write_text(f'[\n{lines}\n]\n')


if __name__ == '__main__':
    run_command(main)
