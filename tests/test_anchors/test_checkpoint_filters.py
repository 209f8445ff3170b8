import pytest
import torch

from snnet_mm.anchors.checkpoint_filters import to_our_names


def numbered(*keys):
    return {key: torch.full((2,), float(i)) for i, key in enumerate(keys)}


@pytest.mark.parametrize(
    ('theirs', 'ours'),
    [
        (['blocks.0.gamma_1', 'blocks.11.gamma_2'], ['blocks.0.ls1', 'blocks.11.ls2']),
        (['register_tokens', 'cls_token'], ['reg_token', 'cls_token']),
        (['dist_token', 'pos_embed'], ['reg_token', 'pos_embed']),
        (
            [
                'layers.0.ln1.weight',
                'layers.10.attn.gamma1.weight',
                'layers.1.ffn.gamma2.weight',
                'layers.1.ffn.layers.0.0.bias',
                'layers.1.ffn.layers.1.bias',
                'layers.1.attn.qkv.bias',
                'patch_embed.projection.bias',
                'ln1.bias',
            ],
            [
                'blocks.0.norm1.weight',
                'blocks.10.ls1',
                'blocks.1.ls2',
                'blocks.1.mlp.fc1.bias',
                'blocks.1.mlp.fc2.bias',
                'blocks.1.attn.qkv.bias',
                'patch_embed.proj.bias',
                'norm.bias',
            ],
        ),
        (
            ['blocks.0.ls1.gamma', 'norm.weight', 'odd.key'],
            ['blocks.0.ls1', 'norm.weight', 'odd.key'],
        ),
    ],
)
def test_names(theirs, ours):
    weights = numbered(*theirs)
    before = dict(weights)
    renamed = to_our_names(weights)
    expected = [f'{k}.gamma' if k[-3:] in ('ls1', 'ls2') else k for k in ours]
    assert list(renamed) == expected
    for i, key in enumerate(expected):
        assert renamed[key] is weights[theirs[i]]
    assert weights == before


@pytest.mark.parametrize(
    'key',
    [
        'head.weight',
        'head_dist.bias',
        'fc_norm.weight',
        'pre_logits.fc.weight',
        'lm_head.weight',
        'mask_token',
        'decoder_embed.weight',
        'decoder_pos_embed',
        'decoder_blocks.0.norm1.weight',
        'blocks.0.attn.relative_position_index',
        'rel_pos_bias.relative_position_index',
    ],
)
def test_left_out(key):
    assert list(to_our_names(numbered('cls_token', key))) == ['cls_token']


@pytest.mark.parametrize('key', ['decode_head.weight', 'heads', 'norm.bias'])
def test_not_left_out(key):
    assert list(to_our_names(numbered(key))) == [key]


def test_beit_bias_and_tables():
    attn = 'blocks.1.attn'
    weights = {
        f'{attn}.q_bias': torch.tensor([1.0, 2]),
        f'{attn}.v_bias': torch.tensor([3.0, 4]),
        f'{attn}.relative_position_bias_table': torch.tensor([[5.0]]),
        'rel_pos_bias.relative_position_bias_table': torch.tensor([[7.0]]),
        'blocks.0.gamma_1': torch.ones(2),
    }
    converted = to_our_names(weights)
    assert len(weights) == 5
    assert {k: v.tolist() for k, v in converted.items()} == {
        f'{attn}.qkv.bias': [1, 2, 0, 0, 3, 4],
        f'{attn}.rel_pos_bias.table': [[12]],
        'blocks.0.attn.rel_pos_bias.table': [[7]],
        'blocks.0.ls1.gamma': [1, 1],
    }


def test_half_a_bias_stays_as_it_is():
    weights = numbered('blocks.0.attn.q_bias', 'blocks.0.norm1.weight')
    assert to_our_names(weights) == weights
