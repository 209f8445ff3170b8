import copy

import pytest
import torch
from mmengine.registry import MODELS

from snnet_mm.models import SNNetv2, StitchingLayer

IMAGES = (2, 3, 16, 24)


def vit_cfg(width=8, depth=2, **kwargs):
    arch = dict(embed_dims=width, depth=depth, num_heads=2)
    return dict(type='PlainViT', img_size=32, patch_size=8, arch=arch) | kwargs


def test_built_from_a_config():
    anchors = [vit_cfg(16), vit_cfg(24, 3)]
    net = MODELS.build(dict(type='SNNetv2', anchors=anchors))
    assert type(net) is SNNetv2
    assert {layer.rank for layer in net.stitching_layers.values()} == {16}
    net = SNNetv2(anchors, dict(type='StitchingLayer'))
    assert {type(m) for m in net.stitching_layers.values()} == {StitchingLayer}


@pytest.mark.parametrize('which', [0, 1])
def test_each_anchor_loads_weights_of_its_own(build_vit, tmp_path, which):
    trained = build_vit(width := (8, 12)[which], 3)
    path = str(tmp_path / 'trained.pth')
    weights = {f'backbone.{k}': v for k, v in trained.state_dict().items()}
    torch.save(dict(state_dict=weights), path)
    anchors = [vit_cfg(8, 3), vit_cfg(12, 3)]
    anchors[which]['init_cfg'] = dict(
        type='Pretrained', checkpoint=path, prefix='backbone.'
    )
    net = SNNetv2(anchors, dict(type='LoRAStitchingLayer', rank=2))
    other = copy.deepcopy(net.anchors[1 - which].state_dict())
    net.init_weights()
    assert net.anchors[which].block_dims == (width,) * 3
    for key, value in net.anchors[which].state_dict().items():
        assert value.equal(trained.state_dict()[key]), key
    for key, value in net.anchors[1 - which].state_dict().items():
        assert value.equal(other[key]), key


def test_grids_of_different_sizes_are_bridged(build_vit):
    net = SNNetv2(
        [build_vit(8, 2, img_size=16), build_vit(12, 4, img_size=64)],
        dict(type='LoRAStitchingLayer', rank=2),
    )
    for stitch in net.space:
        net.set_stitch(stitch.id)
        assert net(torch.randn(IMAGES))[0].shape == (2, 12, 2, 3)


@pytest.mark.parametrize(
    ('anchors', 'message'),
    [
        ([vit_cfg(), vit_cfg(patch_size=16)], r'patch_size=\(\(8,\), \(16,\)\)'),
        ([vit_cfg(), vit_cfg(cls_token=False)], '1 cls token.* .0 cls token'),
        ([vit_cfg(num_registers=4), vit_cfg()], '4 registers.* 0 registers'),
        ([vit_cfg(width=12), vit_cfg()], r'\(12, 8\); allowed: widths in order'),
        ([vit_cfg(depth=5), vit_cfg(depth=4)], r'anchors=\(5, 4\)'),
        ([vit_cfg()], r'anchors=\(2,\)'),
        ([vit_cfg(), vit_cfg(depth=3), vit_cfg()], r'anchors=\(2, 3, 2\)'),
    ],
)
def test_anchors_that_cannot_be_stitched(anchors, message):
    with pytest.raises(ValueError, match=message) as error:
        SNNetv2(anchors, dict(type='StitchingLayer'))
    assert 'config key: ' in str(error.value)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(kinds=('FS', 'SS')), r"kinds=\('FS', 'SS'\); allowed: 'FS'"),
        (dict(stitch_ids=(2, 9)), 'stitch id 9 .* allowed are 0-3, 5-8'),
        (dict(out='logits'), "out='logits'; allowed: 'maps', 'end'"),
        (dict(out_indices=(3, 7)), r'out_indices=\(3, 7\); .* blocks -7 to 6'),
        (dict(out_indices=()), r'out_indices=\(\)'),
        (dict(eval_maps=(1,)), r'eval_maps=\(1,\); allowed: places 0 to 0'),
        (dict(eval_maps=()), r'eval_maps=\(\); allowed'),
        (dict(stitching_layer=dict(type='LinearAdapter')), 'a type of StitchingLayer'),
        (dict(with_cls=True, anchor=dict(cls_token=False)), 'with_cls=True; .* no cls'),
    ],
)
def test_settings_that_cannot_be(build_snnet, kwargs, message):
    with pytest.raises(ValueError, match=message) as error:
        build_snnet(**kwargs)
    assert 'config key: ' in str(error.value)
