import pytest

from snnet_mm.stitching import Position, SkipSpace, gaps_of

# Kept blocks of a network of 6, blocks whose maps are read, and gaps.
GAPS = [
    ((0, 1, 2, 4, 5), (), [(3, 4)]),
    ((1, 4), (), [(0, 1), (2, 4), (5, 6)]),
    ((), (), [(0, 6)]),
    ((2,), (1, 3, 5), [(0, 2), (3, 4), (4, 6)]),
    ((), (0, 1, 2, 3, 4, 5), [(i, i + 1) for i in range(6)]),
    ((0, 1, 2, 3, 4), (4,), [(5, 6)]),
    ((0, 5), (5,), [(1, 5)]),
]


@pytest.mark.parametrize('kept, read, gaps', GAPS)
def test_gaps_end_after_a_block_that_is_read_and_begin_nowhere_else(kept, read, gaps):
    assert [*gaps_of(kept, 6, read)] == gaps
    (whole, chain) = SkipSpace(6, [kept], read)
    assert (whole.id, whole.kind, whole.layers) == (0, 'anchor', ())
    assert (chain.id, chain.kind) == (1, 'skip')
    assert chain.layers == tuple(f'skip1_{a}to{b}' for a, b in gaps)
    blocks = [step.block for step in chain.steps if not isinstance(step, str)]
    assert blocks == [-1, *kept]
    segments = zip([(0, 0), *gaps], [*gaps, (6, 6)], strict=True)
    assert chain.segments == tuple((0, a[1], b[0]) for a, b in segments)


def test_layers_lead_over_their_gaps_and_serve_the_maps_of_read_blocks():
    space = SkipSpace(6, [(0, 1, 5), (2, 3)], read=(3, 5))
    specs = {n: (s.source.block, s.target.block) for n, s in space.layers.items()}
    assert specs == {
        **{'skip1_2to4': (1, 3), 'skip1_4to5': (3, 4)},
        **{'skip2_0to2': (-1, 1), 'skip2_4to6': (3, 5)},
    }
    served = {
        (stitch.id, block): [
            (place.block, layer)
            for place, layer in space.map_sources(block, 0)
            if space.serves(stitch, place, layer)
        ]
        for stitch in space
        for block in (3, 5)
    }
    assert served == {
        **{(0, 3): [(3, None)], (0, 5): [(5, None)]},
        **{(1, 3): [(1, 'skip1_2to4')], (1, 5): [(5, None)]},
        **{(2, 3): [(3, None)], (2, 5): [(3, 'skip2_4to6')]},
    }
    with pytest.raises(ValueError, match='allowed: 3, 5, .*out_indices'):
        space.map_sources(4, 0)


def test_ids_keep_chains_and_their_layers_alone():
    chains = [(0, 1, 2), (0, 1), (1,)]
    assert SkipSpace(4, chains).ids == (0, 1, 2, 3)
    some = SkipSpace(4, chains, read=(3,), ids=[2])
    assert some.ids == (0, 2)
    assert some.anchor_ids == (0,)
    assert [*some.layers] == ['skip2_2to4']
    assert some[2] == SkipSpace(4, chains, read=(3,))[2]
    assert some[2].runs(Position(0, 1))
    assert not some[2].runs(Position(0, 2))
    with pytest.raises(ValueError, match='id 4 .*allowed are 0-3 .*stitch_ids'):
        SkipSpace(4, chains, ids=[4])


@pytest.mark.parametrize(
    'chain', [(0, 1, 2, 3), (0, 4), (0, 0), (-1,), '01', 3, (1.0,)]
)
def test_a_chain_that_is_no_part_of_the_network(chain):
    allowed = r'allowed: fewer than all of the blocks 0 to 3, .*backbone.chains\[1\]'
    with pytest.raises(ValueError, match=allowed) as error:
        SkipSpace(4, [(0,), chain])
    assert repr(chain) in str(error.value)


def test_a_chain_without_a_block_that_leads_into_a_stage():
    with pytest.raises(ValueError, match=r'\(0, 1\); .*\[2\].*backbone.chains\[0\]'):
        SkipSpace(4, [(0, 1)], skippable=(1, 3))
    assert len(SkipSpace(4, [(0, 2)], skippable=(1, 3))) == 2
