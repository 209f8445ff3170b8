import runpy
import sys
from pathlib import Path

import pytest
import torch
from config_models import read, runs
from mmengine.registry import MODELS
from torch import nn
from ziplab_names import convert_ziplab

from snnet_mm.models import fit_stitching_layers
from snnet_mm.stitching import visiting_order

CONVERTER = Path(__file__).parents[3] / 'tools/model_converters/ziplab2snnet.py'


def rounding(wanted):
    """Absolute tolerance of a map, or of a map and its cls token, at least 1e-5.

    A state is the sum of up to 48 branches, whose rounding makes 3.5 eps of the largest
    activation, 65 in the depth model, in their result as in ours.
    """
    parts = wanted if isinstance(wanted, tuple) else (wanted,)
    largest = max(part.abs().max().item() for part in parts)
    return max(1e-5, 8 * torch.finfo(torch.float32).eps * largest)


@torch.no_grad()
def assert_golden_outputs(backbone, golden, stitch_ids):
    inputs = [name for name in ('x', 'x2') if name in golden.tensors]
    with backbone.sharing_prefixes():
        for stitch in visiting_order(backbone.space[i] for i in stitch_ids):
            backbone.set_stitch(stitch.id)
            for name in inputs:
                out = f'{name.replace("x", "out")}.{stitch.id}'
                found = backbone(golden.tensors[name])
                for j in range(4):
                    wanted = golden.output(f'{out}.{j}')
                    close = dict(rtol=1e-5, atol=rounding(wanted), msg=f'{out}.{j}')
                    torch.testing.assert_close(found[j], wanted, **close)


def load(golden):
    backbone = golden.build()
    backbone.load_state_dict(convert_ziplab(golden.part('sd.')))
    assert backbone.stitching_initialized
    return backbone


SEG = 'seg_v1_tiny', 'seg_v1_s_l', 'seg_v2_tiny', 'seg_v2_s_l'


@pytest.mark.parametrize('golden', [*SEG, 'depth_v2_tiny'], indirect=True)
def test_snnet_all_stitches_equal_those_of_the_authors(golden):
    backbone, number = load(golden), 13 if 'v1' in golden.meta['name'] else 134
    assert golden.meta['stitch_ids'] == list(backbone.space.ids)
    assert len(backbone.space) == number
    assert_golden_outputs(backbone, golden, backbone.space.ids)


@pytest.mark.parametrize('golden', SEG, indirect=True)
def test_fit_stitching_layers_equals_maps_of_the_authors(golden):
    backbone = load(golden)
    backbone.stitching_initialized.fill_(False)
    assert fit_stitching_layers(backbone, [golden.tensors['ls.x']]) == 8
    assert backbone.stitching_initialized
    theirs = convert_ziplab(golden.part('sd.') | golden.part('ls.'))
    for name, value in backbone.stitching_layers.state_dict().items():
        if 'lora' not in name:
            expected = theirs.pop(f'stitching_layers.{name}')
            assert (value - expected).norm() < 1e-5 * expected.norm(), name
    assert all('lora' in k for k in theirs if k.startswith('stitching_layers.'))


def test_ziplab2snnet_converts_weights(tiny_golden, tmp_path, monkeypatch):
    theirs = {f'backbone.{k}': v for k, v in tiny_golden.part('sd.').items()}
    theirs['decode_head.conv_depth.head.0.bias'] = torch.ones(3)
    source, target = tmp_path / 'theirs.pth', tmp_path / 'out' / 'ours.pth'
    torch.save(dict(model=theirs), source)
    monkeypatch.setattr(sys, 'argv', [str(CONVERTER), str(source), str(target)])
    runpy.run_path(str(CONVERTER), run_name='__main__')
    ours = torch.load(target, weights_only=True)['state_dict']
    assert ours.pop('decode_head.conv_depth.0.bias').equal(torch.ones(3))
    model = nn.ModuleDict(dict(backbone=tiny_golden.build()))
    model.load_state_dict(ours)
    assert_golden_outputs(model['backbone'], tiny_golden, [12])


@pytest.mark.parametrize('golden', ['seg_v2_tiny', 'depth_v2_tiny'], indirect=True)
def test_released_configs_equal_golden_at_its_width(golden):
    seg = 'setr/setr-naive_snnetv2-deit3-?-l_8xb2-*'
    names = runs(seg if golden.is_seg else 'dpt/*released*')
    assert len(names) == (4 if golden.is_seg else 2)
    for name in names:
        backbone, m = read(name).model.backbone, golden.meta
        sizes = zip(m['embed_dims'], m['depths'], m['num_heads'], strict=True)
        for anchor, (width, depth, heads) in zip(backbone.anchors, sizes, strict=True):
            arch = dict(embed_dims=width, depth=depth, num_heads=heads)
            anchor.update(arch=arch, img_size=m['img'], patch_size=m['patch'])
        backbone.stitching_layer.rank = m['lora_r']
        backbone.out_indices, backbone.eval_maps = m['out_indices'][1], None
        net = MODELS.build(backbone).eval()
        net.load_state_dict(convert_ziplab(golden.part('sd.')))
        assert_golden_outputs(net, golden, [0, 1, 40, 133])
