import pytest

from snnet_mm.models import convert_ziplab

STITCH = 'stitch_layers.0.0.transform.weight'


def test_derived_indices_are_dropped_and_heads_keep_their_names():
    index = 'backbone.anchors.0.layers.0.attn.relative_position_index'
    head = 'decode_head.layers.0.ln1.weight'
    weights = dict.fromkeys([f'backbone.{STITCH}', index, head], 0)
    layer = 'backbone.stitching_layers.0to1_0.weight'
    found = set(convert_ziplab(weights))
    assert found == {layer, 'backbone.stitching_initialized', head}


OTHER = {'backbone.blocks.0.norm1.weight': 0, STITCH: 0}


@pytest.mark.parametrize('weights', [{}, {'blocks.0.norm1.weight': 0}, OTHER])
def test_other_checkpoints_are_refused(weights):
    with pytest.raises(ValueError, match="allowed: .*with 'stitch_layers'") as error:
        convert_ziplab(weights)
    assert str(list(weights)[:3]) in str(error.value)
