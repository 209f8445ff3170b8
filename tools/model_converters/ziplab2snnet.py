"""Convert a checkpoint of the authors' SN-Nets: ``ziplab2snnet.py SRC DST``."""

import argparse

from snnet_mm.utils import ToolParser, atomic_path, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__)
    what = 'checkpoint of the authors: a segmentor, a classifier or a bare backbone'
    parser.add_argument('src', help=what)
    parser.add_argument('dst', help='checkpoint to write')
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    import torch
    from ziplab_names import convert_ziplab

    from snnet_mm.utils import load_weights_only
    from snnet_mm.utils.checkpoints import weights_of

    converted = convert_ziplab(weights_of(load_weights_only(args.src)))
    with atomic_path(args.dst) as temporary:
        torch.save(dict(state_dict=converted, meta=dict()), temporary)
    print(f'Wrote {len(converted)} tensors to {args.dst}')


if __name__ == '__main__':
    run_command(main)
