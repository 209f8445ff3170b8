import pytest
import torch

from snnet_mm.models import convert_ziplab

STITCH = 'stitch_layers.0.0.transform.weight'


def test_derived_indices_are_dropped_and_heads_keep_their_names():
    weights = {
        f'backbone.{STITCH}': torch.zeros(1),
        'backbone.anchors.0.layers.0.attn.relative_position_index': torch.zeros(1),
        'decode_head.layers.0.ln1.weight': torch.zeros(1),
    }
    assert set(convert_ziplab(weights)) == {
        'backbone.stitching_layers.0to1_0.weight',
        'backbone.stitching_initialized',
        'decode_head.layers.0.ln1.weight',
    }


@pytest.mark.parametrize(
    'weights',
    [
        {},
        {'blocks.0.norm1.weight': 0},
        {'backbone.blocks.0.norm1.weight': 0, STITCH: 0},
    ],
)
def test_other_checkpoints_are_refused(weights):
    with pytest.raises(ValueError, match="allowed: .*with 'stitch_layers'") as error:
        convert_ziplab(weights)
    assert str(list(weights)[:3]) in str(error.value)
