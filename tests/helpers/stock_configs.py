"""Small versions of the mm packages' configs, with stitched backbones."""

from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config
from narrowing import SIDE, WIDTH

from snnet_mm.tasks import parts_for

# As in README.md, "Drop in".
OWN = """
_base_ = [{stock!r}, __import__('snnet_mm').CONFIGS + '/_base_/stitched.py']
custom_imports = dict(imports={imports}, allow_failed_imports=False)
model = {model!r}
default_hooks = _base_.pop('stitch_hooks')
for part in (default_hooks.stitch_init, default_hooks.stitch_statistics):
    part.num_images = 2
default_hooks.stitch_sampling.sampler.step = 1e5
val_cfg, test_cfg = _base_.pop('stitch_loops')
test_cfg.stitches = {stitches}
{extra}
"""


def plain_vits(**kwargs):
    """A narrow SN-Netv2 of plain ViTs, whose maps have stride 16."""
    anchors = [
        dict(
            type='PlainViT',
            img_size=SIDE,
            arch=dict(embed_dims=width, depth=depth, num_heads=2),
        )
        for width, depth in ((16, 2), (WIDTH, 4))
    ]
    layer = dict(type='LoRAStitchingLayer', rank=2)
    return dict(type='SNNetv2', anchors=anchors, stitching_layer=layer, **kwargs)


def convnexts(**kwargs):
    """A narrow SN-Netv1 of two ConvNeXts, whose four maps have strides 4 to 32."""
    anchors = [
        dict(
            type='TimmStageAnchor',
            model='convnext_tiny',
            model_args=dict(dims=(width,) * 4, depths=depths),
        )
        for width, depths in ((16, (1, 1, 1, 1)), (WIDTH, (2, 2, 2, 2)))
    ]
    return dict(type='SNNetv1', anchors=anchors, stages=(0, 1, 2), **kwargs)


def pyramid(*strides, **model):
    """Plain ViTs with a neck that derives a detector's levels from their last map."""
    neck = dict(type='SimpleFeaturePyramid', in_channels=WIDTH, out_channels=WIDTH)
    return model | dict(
        backbone=plain_vits(out_indices=(3,)),
        neck=neck | dict(strides=strides, _delete_=True),
        data_preprocessor=dict(pad_size_divisor=strides[-1]),
    )


# Partial models with the last map, maps of four stages, or levels of a detector.
LAST = dict(backbone=plain_vits(out_indices=(3,)))
STAGES = dict(backbone=convnexts(out_indices=(1, 3, 5, 7)))
THREE, FROM_8 = pyramid(8, 16, 32), pyramid(8, 16, 32, 64, 128)
# Queries have the width to which necks and transformers are narrowed.
QUERIES = pyramid(8, 16, 32, 64, bbox_head=dict(embed_dims=WIDTH))


def classifier(backbone, **head):
    """A backbone and a head for each anchor."""
    heads = [dict(in_channels=width, **head) for width in (16, WIDTH)]
    loss = dict(type='CrossEntropyLoss')
    head = dict(type='StitchedClsHead', num_classes=2, anchor_heads=heads, loss=loss)
    return dict(
        backbone=backbone(out='end'), neck=None, head=head | dict(_delete_=True)
    )


def read_own(package, stock, model, path, stitches=(0, 1, 4), extra=''):
    """Write the config with which a user stitches a stock config, and read it."""
    folder = Path(find_spec(package).origin).parent / '.mim' / 'configs'
    needs_mmdet = stock.startswith(('mask', 'point_rend'))
    scopes = dict.fromkeys(['mmdet'] * needs_mmdet + [package])
    parts = [part for s in scopes for part in parts_for(dict(default_scope=s))]
    imports = [*parts, 'snnet_mm']
    # pretrained is a checkpoint of the stock backbone.
    model = dict(model, pretrained=None) if package == 'mmseg' else dict(model)
    model['backbone'] = dict(model['backbone'], _delete_=True)
    settings = dict(imports=imports, model=model, stitches=stitches)
    stock = str(folder / f'{stock}.py')
    path.write_text(OWN.format(stock=stock, extra=extra, **settings))
    return Config.fromfile(path)
