"""Write the tables of supported backbones: ``python tests/helpers/supported.py``."""

from collections import defaultdict
from copy import deepcopy
from importlib import import_module
from pathlib import Path

from families import all_families
from mmengine.registry import MODELS
from torch import nn

from snnet_mm.anchors import BranchView
from snnet_mm.anchors.branches import owner_of_forward
from snnet_mm.utils.timm_models import create_timm_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / 'docs/how_to/anchors.md'
PACKAGES = 'mmseg', 'mmdet', 'mmpretrain', 'timm'
# What the names of classes do not say.
KNOWN_AS = {
    'timm.VisionTransformer': 'DINOv2, DeiT, SigLIP2, CLIP',
    'timm.Eva': 'DINOv3, EVA-02, Perception Encoder, RoPE',
    'timm.Beit': 'BEiT, BEiTv2',
    'timm.VisionTransformerSAM': 'SAM',
    'timm.MetaFormer': 'CAFormer, ConvFormer, PoolFormer',
    'timm.MultiScaleVit': 'MViT v2',
    'timm.PyramidVisionTransformerV2': 'PVT v2',
    'mmseg.MixVisionTransformer': 'SegFormer',
    'mmseg.MSCAN': 'SegNeXt',
    'mmseg.PCPVT': 'Twins',
    'mmpretrain.PCPVT': 'Twins',
    'mmpretrain.VisionTransformer': 'also DeiT',
    'mmpretrain.ViTSAM': 'SAM',
    'mmdet.PyramidVisionTransformer': 'PVT, PVT v2',
}
# Layers whose weights are int8, of those with large weights.
LINEAR = nn.Linear, nn.MultiheadAttention
MARK = '<!-- supported -->\n\n'


def network_of(config, anchor):
    """Return the class of an anchor's network: ``'package.Class'``."""
    if 'model' in config:
        network = create_timm_model(config['model'], **config['model_args'])
        return owner_of_forward(network)
    return owner_of_forward(anchor.net) if 'net' in config else 'snnet_mm.PlainViT'


def supported():
    """Return what each network of the registry supports, by anchor type and class."""
    found = defaultdict(lambda: dict(units=set(), linear=0, weights=0))
    for _, config in all_families():
        anchor = MODELS.build(deepcopy(config))
        row = found[config['type'], network_of(config, anchor)]
        view = BranchView(anchor)
        steps = zip(view.steps, view.widths, strict=True)
        row['units'] |= {step.kind for step, width in steps if width > 1}
        for i in range(anchor.depth):
            for layer in anchor.get_submodule(anchor.block_path(i)).modules():
                convolves = isinstance(layer, nn.Conv2d)
                size = sum(p.numel() for p in layer.parameters(recurse=False))
                if (convolves and layer.groups == 1) or isinstance(layer, LINEAR):
                    row['weights'] += size
                    row['linear'] += size * (not convolves)
    return dict(found)


def reduced(row):
    """Return what can be reduced, as text."""
    names = dict(attention='heads', mlp='neurons')
    return ', '.join([n for k, n in names.items() if k in row['units']] + ['blocks'])


def named(network):
    """Return the class of a network, and what it is known as."""
    known = f' ({KNOWN_AS[network]})' if network in KNOWN_AS else ''
    return f'`{network.partition(".")[2]}`{known}'


def whole_table(rows):
    """Return the table of all classes, those of several packages in one line."""
    lines = defaultdict(list)
    for (kind, network), row in rows.items():
        package = network.partition('.')[0]
        share = row['linear'] / row['weights']
        int8 = 'no' if share == 0 else 'yes' if share > 0.9 else 'in part'
        lines[kind, named(network), reduced(row), int8].append(package)
    table = '| backbone | package | stitched as | elastic by | ONNX | int8 |\n'
    table += '|---|---|---|---|---|---|\n'
    return table + '\n'.join(
        f'| {name} | {", ".join(packages)} | `{kind}` | {units} | yes | {int8} |'
        for (kind, name, units, int8), packages in lines.items()
    )


def short_table(rows):
    """Return the table of classes by package and by what can be reduced."""
    cells = defaultdict(list)
    for (_, network), row in rows.items():
        cells[reduced(row), network.partition('.')[0]].append(named(network))
    kinds = sorted({kind for kind, _ in cells}, key=len, reverse=True)
    lines = [
        f'| elastic by | {" | ".join(PACKAGES)} |',
        '|---' * (1 + len(PACKAGES)) + '|',
        *(
            f'| {kind} | {" | ".join(", ".join(cells[kind, p]) for p in PACKAGES)} |'
            for kind in kinds
        ),
    ]
    return '\n'.join(lines)


def tables():
    """Return the tables by page."""
    for package in PACKAGES[:3]:
        import_module(f'{package}.models')
    rows = supported()
    return {PAGE: whole_table(rows), ROOT / 'README.md': short_table(rows)}


def written(page):
    """Return the table that a page contains."""
    return page.read_text().partition(MARK)[2].partition('\n\n')[0]


if __name__ == '__main__':
    for page, table in tables().items():
        text = page.read_text()
        page.write_text(text.replace(written(page), table))
