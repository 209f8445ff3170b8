"""Stand-ins for what the mm packages cannot trace."""

from importlib import import_module

import pytest
import torch

from snnet_mm.exports.mm_internals import make_traceable

PLACES = dict(
    mmseg='mmseg.models.backbones.swin',
    mmdet='mmdet.models.backbones.swin',
    mmpretrain='mmpretrain.models.utils.attention',
)


@pytest.mark.parametrize('package', PLACES)
@pytest.mark.parametrize('shift', [0, 2])
def test_windows_are_merged_as_in_the_package(package, shift):
    pytest.importorskip(package)
    kind = import_module(PLACES[package]).ShiftWindowMSA
    size = dict(pad_small_map=True) if package == 'mmpretrain' else {}
    theirs, ours = (
        kind(embed_dims=6, num_heads=2, window_size=4, shift_size=shift, **size)
        for _ in range(2)
    )
    ours.load_state_dict(theirs.state_dict())
    make_traceable(ours)
    assert 'window_reverse' in vars(ours)
    tokens = torch.randn(3, 7 * 10, 6)  # 2 x 3 windows of 3 images
    assert torch.equal(ours(tokens, (7, 10)), theirs(tokens, (7, 10)))


def test_checkpointing_is_off():
    module = torch.nn.Module()
    module.with_cp = True
    make_traceable(torch.nn.ModuleList([module]))
    assert module.with_cp is False
