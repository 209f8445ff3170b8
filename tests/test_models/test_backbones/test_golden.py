import runpy
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from snnet_mm.models import convert_ziplab, fit_stitching_layers

CONVERTER = Path(__file__).parents[3] / 'tools/model_converters/ziplab2snnet.py'


@torch.no_grad()
def assert_golden_outputs(backbone, golden, stitch_ids):
    inputs = [name for name in ('x', 'x2') if name in golden.tensors]
    for i, name in product(stitch_ids, inputs):
        backbone.set_stitch(i)
        torch.testing.assert_close(
            backbone(golden.tensors[name]),
            tuple(
                golden.output(f'{name.replace("x", "out")}.{i}.{j}') for j in range(4)
            ),
            rtol=1e-5,
            atol=1e-5,
            msg=lambda text, i=i: f'stitch {i}: {text}',
        )


def test_all_stitches_of_snnet_v1_give_the_outputs_of_the_authors(golden_v1):
    backbone = golden_v1.build()
    backbone.load_state_dict(convert_ziplab(golden_v1.part('sd.')))
    assert golden_v1.meta['stitch_ids'] == list(backbone.space.ids) == list(range(13))
    assert_golden_outputs(backbone, golden_v1, golden_v1.meta['stitch_ids'])


def test_all_stitches_give_the_outputs_of_the_authors(golden_v2):
    backbone = golden_v2.build()
    backbone.load_state_dict(convert_ziplab(golden_v2.part('sd.')))
    assert len(golden_v2.meta['stitch_ids']) == 134
    assert_golden_outputs(backbone, golden_v2, golden_v2.meta['stitch_ids'])
    assert backbone.stitching_initialized


def test_least_squares_of_snnet_v1_gives_the_maps_of_the_authors(golden_v1):
    backbone = golden_v1.build()
    backbone.load_state_dict(convert_ziplab(golden_v1.part('sd.')))
    fit_stitching_layers(backbone, [golden_v1.tensors['ls.x']])
    theirs = convert_ziplab(golden_v1.part('ls.'))
    for name, value in backbone.stitching_layers.state_dict().items():
        expected = theirs[f'stitching_layers.{name}']
        assert (value - expected).norm() < 1e-5 * expected.norm(), name


class Segmentor(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.decode_head = nn.Linear(2, 3)


def segmentor_weights(golden):
    """A checkpoint of the authors' segmentor, with a head of ours."""
    head = nn.Linear(2, 3).state_dict()
    return {f'backbone.{k}': v for k, v in golden.part('sd.').items()} | {
        f'decode_head.{k}': v for k, v in head.items()
    }


def test_conversion_loses_no_tensor(golden_v2):
    theirs = golden_v2.part('sd.')
    ours = convert_ziplab(theirs)
    kept = [v for k, v in theirs.items() if not k.endswith('relative_position_index')]
    assert len(ours) == len(kept) + 2  # whether it is fitted, and the space
    assert {v.data_ptr() for v in kept} < {v.data_ptr() for v in ours.values()}
    assert set(ours) == set(golden_v2.build().state_dict())


@pytest.mark.parametrize('wrapping', [None, 'state_dict', 'model'])
def test_converter_tool(tiny_golden, tmp_path, monkeypatch, capsys, wrapping):
    theirs = segmentor_weights(tiny_golden)
    source, target = tmp_path / 'theirs.pth', tmp_path / 'out' / 'ours.pth'
    torch.save(theirs if wrapping is None else {wrapping: theirs}, source)
    monkeypatch.setattr(sys, 'argv', [str(CONVERTER), str(source), str(target)])
    runpy.run_path(str(CONVERTER), run_name='__main__')
    output = capsys.readouterr().out
    ours = torch.load(target, weights_only=True)['state_dict']
    assert f'{len(ours)} tensors' in output
    model = Segmentor(tiny_golden.build())
    model.load_state_dict(ours)
    assert_golden_outputs(model.backbone, tiny_golden, [0, 12, 100])
    assert [p.name for p in target.parent.iterdir()] == ['ours.pth']
