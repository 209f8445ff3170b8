"""Stitch two trained models: write a config to train, and its initial weights."""

import argparse
from pathlib import Path

from snnet_mm.utils import ToolParser, parse_size, run_command, tool_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(
        description='Stitch two trained models: write a config to train, and its '
        'initial weights. The cheaper model becomes the fast anchor.'
    )
    add = parser.add_argument
    for name in ('a', 'b'):
        add(f'config_{name}', help=f'config of trained model {name}')
        add(f'checkpoint_{name}', help=f'checkpoint of model {name}')
    add('--out', required=True, help='config to write; initial weights go beside it')
    what = """input size at which costs are counted (default: the data
        preprocessor's, or that of a classifier's backbone)"""
    add('--shape', metavar='HxW', help=what)
    return parser.parse_args()


def main() -> None:
    args = parse_args()

    from snnet_mm.stitch_models import stitch_models

    size = args.shape and parse_size(args.shape, '--shape')
    pair = (args.config_a, args.checkpoint_a), (args.config_b, args.checkpoint_b)
    fast, slow, costs = stitch_models(*pair, args.out, size)
    print(f'fast: {fast.config}\nslow: {slow.config}')
    kinds = [
        m.model.get('decode_head', {}).get('type', m.model['type'])
        for m in (fast, slow)
    ]
    if kinds[0] != kinds[1]:
        print(f"Note: the heads differ; the slow model's {kinds[1]} is used")
    low, high = (f'{costs[i].flops / 1e9:.3g}' for i in (0, 1))
    print(f'Wrote {args.out}: {len(costs)} stitches, {low} to {high} GFLOPs')
    train = slow.cfg.train_cfg
    kind = 'iter' if train.get('max_iters') else 'epoch'
    last = f'{kind}_{train.get("max_iters") or train.get("max_epochs")}.pth'
    trained = Path('work_dirs', Path(args.out).stem, last)
    print(f"""Next:
  {tool_command('train.py', args.out)}
  {tool_command('test.py', args.out, trained, '--stitch-id', 'all')}""")


if __name__ == '__main__':
    run_command(main)
