from itertools import pairwise

import pytest

from snnet_mm.stitching import (
    Position,
    SkipSpace,
    check_space_record,
    write_space_record,
)

# Three blocks of attention and MLP, and a norm after the last one.
WIDTHS, BLOCKS = (4, 64, 4, 64, 4, 64, 1), (0, 0, 1, 1, 2, 2, None)


def build(*plans, **kwargs):
    return SkipSpace(WIDTHS, [(*plan, 1) for plan in plans], BLOCKS, **kwargs)


@pytest.mark.parametrize(
    'plan, read, changes',  # blocks whose maps are read; first step, end, and units
    [
        ((4, 64, 4, 0, 4, 64), (2,), [(3, 4, 0)]),
        ((0, 0, 0, 0, 0, 0), (2,), [(0, 6, 0)]),
        ((0, 0, 0, 0, 0, 0), (0, 2), [(0, 2, 0), (2, 6, 0)]),
        ((4, 0, 0, 64, 0, 32), (0,), [(1, 2, 0), (2, 3, 0), (4, 5, 0), (5, 6, 32)]),
        ((2, 32, 2, 32, 4, 64), (), [(0, 1, 2), (1, 2, 32), (2, 3, 2), (3, 4, 32)]),
        ((0, 1, 0, 1, 0, 1), (0, 1), [(i, i + 1, i % 2) for i in range(6)]),
    ],
)
def test_skip_space_layers_of_gaps_and_narrow_branches(plan, read, changes):
    whole, chain = space = build(plan, read=read)
    assert (whole.id, whole.kind, whole.layers) == (0, 'anchor', ())
    assert (chain.id, chain.kind) == (1, 'skip')
    specs = [space.layers[name] for name in chain.layers]
    assert [(s.source.block + 1, s.target.block + 1) for s in specs] == [
        (first, end) for first, end, _ in changes
    ]
    narrow = {f'narrow1_{i}_{units}': (i, units) for i, _, units in changes if units}
    assert space.narrow == narrow
    left = {*range(7)} - {i for first, end, _ in changes for i in range(first, end)}
    steps = [step.block for step in chain.steps if not isinstance(step, str)]
    assert steps == [-1, *sorted(left)]


def test_skip_space_maps_of_last_layers():
    space = build((4, 64, 4, 64, 0, 0), (4, 64, 4, 0, 0, 64), read=(1, 2))
    served = {
        (stitch.id, block): [
            (place.block, layer)
            for place, layer in space.map_sources(block, 0)
            if space.serves(stitch, place, layer)
        ]
        for stitch in space
        for block in (1, 2)
    }
    whole = {(i, block): [(3 * block, None)] for i in range(3) for block in (1, 2)}
    assert served == whole | {(2, 1): [(2, 'skip2_3to4')]}
    for block in (0, 5):
        with pytest.raises(ValueError, match='out_indices'):
            space.map_sources(block, 0)


def test_skip_space_ids_keep_their_layers_alone():
    plans = (4, 64, 4, 64, 4, 0), (4, 64, 4, 64, 0, 0), (4, 9, 4, 0, 0, 0)
    some = build(*plans, ids=[2])
    assert (some.ids, some.anchor_ids, [*some.layers]) == ((0, 2), (0,), ['skip2_4to6'])
    assert some[2] == build(*plans)[2]
    assert some[2].runs(Position(0, 3))
    assert not some[2].runs(Position(0, 4))
    with pytest.raises(ValueError, match='id 4 .* 0-3 .*stitch_ids'):
        build(*plans, ids=[4])


@pytest.mark.parametrize(
    'plan, words',
    [
        (WIDTHS, r"\[0\]='0:4/64 1:4/64 2:4/64' is invalid"),
        ((4, 64, 4, 0, 4, 64, 1), r"='.* 1:4/0 .*blocks \[1\].*--plan\[0\]"),
    ],
)
def test_skip_space_plan_that_cannot_run_raises(plan, words):
    with pytest.raises(ValueError, match=words):
        SkipSpace(WIDTHS, [plan], BLOCKS, skippable=(0, 1, 2), key='--plan')


def test_skip_space_widths_change_fingerprint_and_record():
    plans = (4, 64, 4, 64, 4, 32), (4, 64, 4, 64, 4, 31), (4, 64, 4, 64, 4, 0)
    spaces = [build(plan) for plan in plans]
    for one, other in pairwise([*spaces, spaces[0]]):
        assert one.fingerprint != other.fingerprint
        check_space_record(write_space_record(one), one, exact=True)
        with pytest.raises(ValueError, match='Stitch 1 is .*backbone.stitch_ids'):
            check_space_record(write_space_record(one), other)
    assert build(plans[0]).fingerprint == spaces[0].fingerprint
