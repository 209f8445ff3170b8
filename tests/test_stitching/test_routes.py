import pytest
from block_counts import count_blocks

from snnet_mm.stitching import (
    Position,
    SlidingWindowSpace,
    TwoWaySpace,
    common_prefix,
    visiting_order,
)


def test_steps_of_a_round_trip():
    space = TwoWaySpace((2, 4))
    fast_slow = next(s for s in space if s.kind == 'FS')
    assert fast_slow.steps == (
        Position(0, -1),
        Position(0, 0),
        fast_slow.layers[0],
        Position(1, 2),
        Position(1, 3),
    )


def test_distinct_blocks_of_the_paper_space():
    space = TwoWaySpace((12, 24))
    assert count_blocks(space, shared=False) == 2412
    assert count_blocks(space, shared=True) == 894


@pytest.mark.parametrize('space', [TwoWaySpace((3, 7)), SlidingWindowSpace((12,) * 3)])
def test_a_walk_in_visiting_order_runs_every_distinct_block_once(space):
    runs, before = 0, ()
    stitches = visiting_order(space)
    assert sorted(s.id for s in stitches) == list(space.ids)
    for stitch in stitches:
        new = stitch.steps[common_prefix(before, stitch.steps) :]
        runs += sum(isinstance(step, Position) and step.block >= 0 for step in new)
        before = stitch.steps
    assert runs == count_blocks(space, shared=True)
