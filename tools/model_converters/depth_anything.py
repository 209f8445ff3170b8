"""Convert a checkpoint of Depth Anything V2: ``depth_anything.py SRC DST``."""

import argparse

from snnet_mm.utils import ToolParser, atomic_path, run_command

# Names of the authors' head and ours, where the coarsest fusion block is the first.
RULES = (
    (r'projects\.(\d)', r'reassemble_blocks.projects.\1.conv'),
    (r'resize_layers', 'reassemble_blocks.resize_layers'),
    (r'scratch\.layer(\d)_rn', lambda m: f'convs.{int(m[1]) - 1}.conv'),
    (r'scratch\.refinenet(\d)', lambda m: f'fusion_blocks.{4 - int(m[1])}'),
    (r'resConfUnit(\d)\.conv(\d)', r'res_conv_unit\1.conv\2.conv'),
    (r'out_conv', 'project.conv'),
    (r'scratch\.output_conv1', 'conv_depth.0'),
    (r'scratch\.output_conv2\.(\d)', lambda m: f'conv_depth.{int(m[1]) + 2}'),
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__)
    parser.add_argument(
        'src', help='checkpoint of the authors, of relative or metric depth'
    )
    parser.add_argument('dst', help='checkpoint to write')
    return parser.parse_args()


def convert(weights: dict) -> dict:
    """Return the weights of a ``DPTDepthEstimator`` with a ``TimmAnchor``.

    The norm of the encoder, which all maps share, becomes a neck of four equal norms.
    """
    from snnet_mm.anchors.pretrained import rename

    converted = {}
    for key, value in weights.items():
        part, _, name = key.partition('.')
        if name.startswith('norm.'):
            for i in range(4):
                converted[f'neck.norms.{i}.{name.removeprefix("norm.")}'] = value
        elif part == 'pretrained' and name != 'mask_token':
            converted[f'backbone.vit.{name}'] = value
        elif part == 'depth_head':
            converted[f'decode_head.{rename(name, RULES)}'] = value
    # The coarsest block has one input: the authors' code never runs this unit.
    unused = 'decode_head.fusion_blocks.0.res_conv_unit1.'
    return {k: v for k, v in converted.items() if not k.startswith(unused)}


def main() -> None:
    args = parse_args()

    import torch

    from snnet_mm.utils import check, load_weights_only
    from snnet_mm.utils.checkpoints import weights_of

    weights = weights_of(load_weights_only(args.src))
    parts = {key.partition('.')[0] for key in weights}
    known = {'pretrained', 'depth_head'}
    check(known <= parts, 'SRC', args.src, f'a file with {known}, unlike {parts}')
    converted = convert(weights)
    with atomic_path(args.dst) as temporary:
        torch.save(dict(state_dict=converted, meta=dict()), temporary)
    print(f'Wrote {len(converted)} tensors to {args.dst}')


if __name__ == '__main__':
    run_command(main)
