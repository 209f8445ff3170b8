import pytest
import torch
import torch.nn.functional as F

from snnet_mm.anchors.fit_positions import fit_bias_tables, fit_pos_embed

CLS, REGISTERS = torch.randn(1, 1, 4), torch.randn(1, 2, 4)


def weights(*entries, grid=(3, 3), registers=False):
    """A position embedding with some entries for prefix tokens, and the tokens."""
    patches = torch.randn(1, grid[0] * grid[1], 4)
    tokens = dict(cls_token=CLS)
    if registers:
        tokens['reg_token'] = REGISTERS
    return dict(tokens, pos_embed=torch.cat([*entries, patches], dim=1))


def entries(number):
    return torch.arange(4.0 * number).view(1, number, 4) + 1


@pytest.mark.parametrize('number', [0, 1, 3])
def test_entries_are_added_to_the_tokens(number):
    """Registers without entries stay as they are."""
    loaded = weights(entries(number), registers=True, grid=(4, 4))
    fitted = fit_pos_embed(loaded, (4, 4), 0)
    assert fitted['cls_token'].equal(CLS + (entries(1) if number else 0))
    own = entries(3)[:, 1:] if number == 3 else 0
    assert fitted['reg_token'].equal(REGISTERS + own)
    assert fitted['pos_embed'].equal(loaded['pos_embed'][:, number:])
    assert loaded['cls_token'].equal(CLS)


@pytest.mark.parametrize('num_loaded', [0, 1])
def test_missing_entries_are_zero(num_loaded):
    loaded = weights(entries(num_loaded), registers=True, grid=(4, 4))
    fitted = fit_pos_embed(loaded, (4, 4), 3)['pos_embed']
    assert fitted[:, :num_loaded].equal(entries(num_loaded))
    assert not fitted[:, num_loaded:3].any()
    assert fitted[:, 3:].equal(loaded['pos_embed'][:, num_loaded:])


def test_a_grid_that_is_told_is_believed():
    loaded = weights(grid=(2, 8))
    fitted = fit_pos_embed(loaded, (4, 4), 0, loaded_grid=(2, 8))['pos_embed']
    image = loaded['pos_embed'][0].T.reshape(1, 4, 2, 8)
    image = F.interpolate(image, size=(4, 4), mode='bicubic', antialias=True)
    torch.testing.assert_close(fitted[0], image[0].flatten(1).T)
    with pytest.raises(ValueError, match='neither 3x8 patches .*init_cfg.img_size'):
        fit_pos_embed(loaded, (4, 4), 0, loaded_grid=(3, 8))


@pytest.mark.parametrize(
    ('loaded', 'grid', 'message'),
    [
        (weights(grid=(2, 4)), (3, 3), 'with 8 entries fits neither 3x3 patches nor'),
        (
            weights(entries(3), registers=True),
            (3, 3),
            '3 prefix tokens, .* has 1 ',
        ),
        # 16 may be 4x4 patches, or the anchor's 3x5 after a cls token.
        (weights(grid=(4, 4)), (3, 5), '16 entries fits 4x4 .* or 3x5 patches'),
    ],
)
def test_embeddings_that_do_not_fit(loaded, grid, message):
    with pytest.raises(ValueError, match=message + '.*config keys?: '):
        fit_pos_embed(loaded, grid, 1)


@pytest.mark.parametrize(
    ('rows', 'num_prefix', 'grid', 'message'),
    [
        (25, 1, (3, 3), 'has 0 rows for prefix tokens, the anchor has 3'),
        (28, 0, (3, 3), 'has 3 rows for prefix tokens, the anchor has 0'),
        (16, 0, (3, 3), 'with 16 entries fits neither 3x3 patches'),
        (225, 0, (3, 23), '225 entries fits 3x23 patches or 8x8 patches'),
    ],
)
def test_tables_that_do_not_fit(rows, num_prefix, grid, message):
    key = 'blocks.5.attn.rel_pos_bias.table'
    with pytest.raises(ValueError, match=f'^{key} .*{message}'):
        fit_bias_tables({key: torch.zeros(rows, 2)}, grid, num_prefix)
