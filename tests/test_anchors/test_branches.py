"""Branches of every family of blocks: whole, with some units, and cut."""

import pytest
import torch
from staged_anchors import disturb
from test_mm_anchor import PLAIN_CASES, STAGED_CASES, build

from snnet_mm.anchors import BranchView, PlainViT, TimmAnchor, mm_family

ARCH = dict(embed_dims=16, depth=2, num_heads=4)
OWN = [
    dict(img_size=32, final_norm=True, layer_scale_init=0.5),
    dict(img_size=32, rel_pos_bias=True),
    dict(img_size=64, cls_token=False, window_size=3, decomposed_rel_pos=True),
]
TIMM = [
    'vit_tiny_patch16_224.augreg_in21k',
    'deit3_small_patch16_224.fb_in1k',
]


def anchors():
    for family, kind, settings, _ in [*PLAIN_CASES, *STAGED_CASES]:

        def make(kind=kind, settings=settings):
            net = build(kind, settings)
            return mm_family(net)(net)

        yield pytest.param(make, id=f'{family} {kind}')
    for settings in OWN:
        yield pytest.param(lambda s=settings: PlainViT(ARCH, **s), id='PlainViT')
    more = dict(img_size=32, model_args=dict(depth=2, embed_dim=24, num_heads=3))
    for name in TIMM:
        yield pytest.param(lambda n=name: TimmAnchor(n, **more), id=name)


@pytest.fixture(params=anchors())
def view(request):
    torch.manual_seed(0)
    anchor = request.param()
    disturb(anchor)
    anchor.eval().requires_grad_(False)
    return BranchView(anchor)


def states_of(view):
    """Return random states before every step, with enough tokens for any fit."""
    state = view.embed(torch.randn(2, 3, 64, 64))
    for i in range(view.depth):
        number = 400 // state.tokens.shape[1] + 1
        yield i, state._replace(tokens=torch.randn(number, *state.tokens.shape[1:]))
        state = view.run_block(state, i)


def test_branches_in_order_equal_the_blocks_bit_for_bit(view):
    images = torch.randn(2, 3, 64, 64)
    state, anchor = view.embed(images), view.anchor
    by_block = state
    for i, unit in enumerate(view.units):
        state = view.run_block(state, i)
        if i in view.ends:
            by_block = anchor.run_block(by_block, unit.block)
            assert torch.equal(state.tokens, by_block.tokens)
            assert state.grid == by_block.grid
    assert view.ends == tuple(
        max(i for i, u in enumerate(view.units) if u.block == b)
        for b in range(anchor.depth)
    )


def test_a_branch_is_linear_in_its_hidden_units(view):
    for i, state in states_of(view):
        branch = view[i]
        if view.widths[i] == 1:
            continue
        order = torch.randperm(branch.units)
        hidden = branch.hidden(*state, order, branch.units)
        assert hidden.shape[-1] == branch.units * branch.group
        x = torch.nn.functional.pad(hidden.flatten(0, 1), (0, 1), value=1).double()
        y = (view.run_block(state, i).tokens - state.tokens).flatten(0, 1).double()
        assert len(x) > x.shape[1]
        left = y - x @ torch.linalg.lstsq(x, y, driver='gelsd').solution
        assert left.abs().max() < 1e-4 * y.abs().max()
