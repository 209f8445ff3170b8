import pytest
import torch

from snnet_mm.models.ziplab_checkpoint import convert_ziplab

STITCH = 'stitch_layers.0.0.transform.weight'


@pytest.mark.parametrize('prefix', ['', 'backbone.'])
@pytest.mark.parametrize(
    ('theirs', 'ours'),
    [
        ('stitch_layers.0.11.transform.bias', 'stitching_layers.0to1_11.bias'),
        ('stitch_layers.1.3.transform.lora_A', 'stitching_layers.1to0_3.lora_A'),
        ('anchors.0.cls_token', 'anchors.0.cls_token'),
        ('anchors.1.patch_embed.projection.bias', 'anchors.1.patch_embed.proj.bias'),
        ('anchors.1.layers.23.gamma_2', 'anchors.1.blocks.23.ls2.gamma'),
        ('anchors.0.layers.4.ln1.weight', 'anchors.0.blocks.4.norm1.weight'),
        ('anchors.0.layers.4.attn.qkv.bias', 'anchors.0.blocks.4.attn.qkv.bias'),
        (
            'anchors.0.layers.4.attn.relative_position_bias_table',
            'anchors.0.blocks.4.attn.rel_pos_bias.table',
        ),
        (
            'anchors.0.layers.4.ffn.layers.0.0.weight',
            'anchors.0.blocks.4.mlp.fc1.weight',
        ),
        ('anchors.0.layers.4.ffn.layers.1.bias', 'anchors.0.blocks.4.mlp.fc2.bias'),
    ],
)
def test_names(prefix, theirs, ours):
    value = torch.randn(2)
    converted = convert_ziplab(
        {prefix + STITCH: torch.zeros(1), prefix + theirs: value}
    )
    assert converted[prefix + ours] is value
    assert converted[prefix + 'stitching_initialized'].equal(torch.tensor(True))


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
