"""Branches of every family of blocks: whole, with some units, and cut."""

from copy import deepcopy

import pytest
import torch
from families import families
from mmengine.registry import MODELS
from staged_anchors import disturb

from snnet_mm.anchors import BranchView

pytest.importorskip('mmdet.models')
pytest.importorskip('mmpretrain.models')
pytest.importorskip('mmseg.models')


IN_ONE_PIECE = 'MMResNet', 'MMVAN', 'MMMSCAN', 'MMTwins'
NARROW_OF_TIMM = 'swin_', 'convnext'


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(params=families())
def view(request):
    torch.manual_seed(0)
    anchor = disturb(MODELS.build(deepcopy(request.param)))
    return BranchView(anchor.eval().requires_grad_(False))


def states_of(view):
    """Return random states before every step, with enough tokens for any fit."""
    state = view.embed(torch.randn(2, 3, 64, 64))
    for i in range(view.depth):
        number = 400 // state.tokens.shape[1] + 1
        yield i, state._replace(tokens=torch.randn(number, *state.tokens.shape[1:]))
        state = view.run_block(state, i)


def test_branch_view_equals_blocks_bit_for_bit(view, request):
    config = request.node.callspec.params['view']
    net = config.get('net', {})
    in_one_piece = config['type'] in IN_ONE_PIECE
    narrow = config.get('model', '').startswith(NARROW_OF_TIMM)
    in_one_piece |= config['type'] == 'TimmStageAnchor' and not narrow
    in_one_piece |= net.get('use_shared_rel_pos_bias', False)
    assert all((step.kind == 'block') == in_one_piece for step in view.steps)
    images = torch.randn(2, 3, 64, 64)
    state, anchor = view.embed(images), view.anchor
    by_block = state
    for i, step in enumerate(view.steps):
        state = view.run_block(state, i)
        if i in view.ends:
            by_block = anchor.run_block(by_block, step.block)
            assert torch.equal(state.tokens, by_block.tokens)
            assert state.grid == by_block.grid
    last = {step.block: i for i, step in enumerate(view.steps)}
    assert view.ends == tuple(last[block] for block in range(anchor.depth))


def test_branch_is_linear_in_hidden_units(view):
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


def test_branch_cut_holds_only_what_units_need(view):
    for i, state in states_of(view):
        if view.widths[i] == 1:
            continue
        branch, units = view[i], (view.widths[i] + 1) // 2
        order = torch.randperm(branch.units)
        number = branch.num_parameters(order, units)
        part = deepcopy(branch)
        part.cut(units)
        weights = branch.tensors(order, units)
        part.block.load_state_dict(weights, strict=False)
        assert weights.keys() <= part.block.state_dict().keys()
        held = [p for name, p in part.block.named_parameters() if branch.owns(name)]
        assert sum(p.numel() for p in held) == number
        wanted = branch.hidden(*state, order, units)
        found = part.hidden(*state, None, units)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        part.cut(0)
        left = {name for name, _ in part.block.named_parameters()}
        others = {name for name, _ in branch.block.named_parameters()}
        assert left == {name for name in others if not branch.owns(name)}
