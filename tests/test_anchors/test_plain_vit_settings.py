import pytest
import torch
from mmengine.registry import MODELS
from states import run

from snnet_mm.anchors import PlainViT, check_out_indices


@pytest.mark.parametrize(
    ('arch', 'message'),
    [
        ('gigantic', "arch='gigantic' .* allowed are .*'base', 'huge', 'large'"),
        (dict(embed_dims=8, depth=2), 'allowed keys are .*num_heads'),
        (dict(embed_dims=8, depth=2, num_heads=2, dim=8), 'allowed keys are'),
        (
            dict(embed_dims=8, depth=2, num_heads=3),
            '3 heads do not divide a width of 8',
        ),
    ],
)
def test_impossible_architectures(arch, message):
    with pytest.raises(ValueError, match=message) as error:
        PlainViT(arch)
    assert 'config key: arch' in str(error.value)


@pytest.mark.parametrize(
    ('key', 'value'),
    [
        ('patch_size', 0),
        ('img_size', 7),
        ('img_size', (32, 0)),
        ('num_registers', -1),
        ('drop_path_rate', 1),
        ('drop_path_rate', -0.1),
    ],
)
def test_impossible_settings(build_vit, key, value):
    with pytest.raises(ValueError, match=f'config key: {key}') as error:
        build_vit(**{key: value})
    assert f'{key}={value!r} ' in str(error.value)


@pytest.mark.parametrize('out_indices', [(3,), (0, -4), ()])
def test_impossible_out_indices(build_vit, out_indices):
    with pytest.raises(ValueError, match='blocks -3 to 2') as error:
        build_vit(depth=3, out_indices=out_indices)
    assert f'out_indices={out_indices} ' in str(error.value)


def test_out_indices_count_from_the_end_too():
    assert check_out_indices([0, -1, -12, 11], 12) == (0, 11, 0, 11)


def test_plain_vit_is_registered():
    vit = MODELS.build(dict(type='PlainViT', arch='tiny', img_size=32))
    assert type(vit) is PlainViT
    assert vit(torch.randn(1, 3, 32, 32))[0].shape == (1, 192, 2, 2)


def test_a_part_holds_and_runs_some_blocks(build_vit):
    vit = build_vit(depth=5, final_norm=True, drop_path_rate=0.4)
    middle = build_vit(
        depth=5,
        final_norm=True,
        drop_path_rate=0.4,
        held_blocks=(1, 2),
        embedding=False,
    )
    names = {k for k in vit.state_dict() if k.startswith(('blocks.1', 'blocks.2'))}
    assert set(middle.state_dict()) == names
    middle.load_state_dict({k: vit.state_dict()[k] for k in names})
    state = vit.embed(torch.randn(2, 3, 32, 32))
    vit.eval()
    middle.eval()
    assert run(middle, state, 1, 3).tokens.equal(run(vit, state, 1, 3).tokens)
    rates = [block.drop_path.rate for block in middle.blocks[1:3]]
    assert rates == [block.drop_path.rate for block in vit.blocks[1:3]]
    assert rates[0] > 0
    last = build_vit(depth=5, final_norm=True, held_blocks=(4,))
    assert 'norm.weight' in last.state_dict()


@pytest.mark.parametrize('held_blocks', [(3,), (-1, 0)])
def test_held_blocks_past_the_depth_are_refused(build_vit, held_blocks):
    with pytest.raises(ValueError, match=r'depth 3; allowed are blocks 0 to 2'):
        build_vit(held_blocks=held_blocks)


@pytest.mark.parametrize(
    'options',
    [
        dict(pos_embed_prefix=True),
        dict(pos_embed_antialias=False),
        dict(abs_pos_embed=False, rel_pos_bias=True),
    ],
    ids=['absolute', 'without antialiasing', 'relative'],
)
def test_fixing_the_input_size_resamples_once(build_vit, options, monkeypatch):
    vit = build_vit(num_registers=2, frozen_stages=0, **options).eval()
    images = torch.randn(2, 3, 24, 56)
    with torch.no_grad():
        (wanted,) = vit(images)
        trained = {name for name, p in vit.named_parameters() if p.requires_grad}
        vit.fix_input_size((24, 56))
        # Nothing is left to be resampled.
        monkeypatch.delattr('torch.nn.functional.interpolate')
        (fixed,) = vit(images)
    assert torch.equal(fixed, wanted)
    assert {n for n, p in vit.named_parameters() if p.requires_grad} == trained
