from snnet_mm.stitching import Position, StagedSpace, TwoWaySpace

SWIN = [(2, 2, 6, 2), (2, 2, 18, 2), (2, 2, 18, 2)]


def joints(space):
    """Anchor left, its last block and the next anchor's first block, by id."""
    return {
        s.id: (s.segments[0].anchor, s.segments[0].end - 1, s.segments[1].begin)
        for s in space
        if s.kind == 'FS'
    }


def test_staged_space_swin_ids_of_authors():
    space = StagedSpace(SWIN, (0, 1, 2))
    assert space.anchor_ids == (0, 1, 2)
    assert space.depths == (12, 24, 24)
    found = joints(space)
    first = [found[i] for i in range(3, 7)]
    assert first == [(0, 0, 1), (1, 0, 1), (0, 2, 3), (1, 2, 3)]
    # Blocks of S saved by the stitches of Ti and S in the third stage, from the
    # published FLOPs.
    saved = [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9, 10, 11]
    third = [(0, 4 + j - less, 5 + j) for j, less in enumerate(saved)]
    assert [found[i] for i in range(7, 24)] == third
    assert [found[i] for i in range(24, 41)] == [(1, 4 + j, 5 + j) for j in range(17)]
    assert len(space) == 41
    fewer = StagedSpace(SWIN, ids=(40,))
    assert fewer.ids == (0, 1, 2, 40)
    assert fewer.describe(fewer[40]) == 'anchor1[0:21] > anchor2[21:24]'


def test_staged_space_plain_anchors_as_one_stage():
    """They are entered at any block.

    ESTA has 40 stitches of 32/40 blocks, which neither rule gives.
    """
    space = StagedSpace([(32,), (40,)], stages=(0,))
    assert len(space) == 41
    assert list(joints(space).values()) == [(0, j * 32 // 40, j) for j in range(1, 40)]
    assert len(TwoWaySpace((32, 40), ('FS',))) == 33


def test_staged_space_joints_follow_block_correspondence():
    """A fast block is left for the slow blocks that belong to it."""
    resnet = StagedSpace([(2, 2, 2, 2), (3, 4, 6, 3)], (1, 2))
    assert list(joints(resnet).values()) == [
        *[(0, 2, 4), (0, 3, 5), (0, 3, 6)],
        *[(0, 4, 8), (0, 4, 9), (0, 5, 10), (0, 5, 11), (0, 5, 12)],
    ]
    # Where rounding would leave the fast anchor a block later.
    deep = StagedSpace([(2, 1), (9, 1)])
    assert [last for _, last, _ in joints(deep).values()] == [*[0] * 4, *[1] * 4]
    assert joints(StagedSpace([(3, 1), (2, 1)])) == {2: (0, 1, 1)}


def test_staged_space_shares_layers_as_authors():
    own, shared = (
        StagedSpace(SWIN, (0, 1, 2), maps=False, share_layers=shares)
        for shares in (False, True)
    )
    assert (len(own.layers), len(shared.layers)) == (38, 6 + 4 + 17)
    assert [s.segments for s in own] == [s.segments for s in shared]
    # Ti and S in the third stage: 17 joints, 6 layers of three blocks of S each.
    names = [shared[i].layers for i in range(7, 24)]
    assert names == [(f'0to1_{5 + j // 3 * 3}',) for j in range(17)]
    assert shared.joints['0to1_8'] == tuple(
        (Position(0, 4 + last), Position(1, 4 + j - 1))
        for last, j in ((1, 4), (1, 5), (2, 6))
    )
    # Layers of equal depths have a joint each.
    assert [shared[i].layers for i in range(24, 41)] == [
        own[i].layers for i in range(24, 41)
    ]


def test_staged_space_every_map_has_substitutes():
    space = StagedSpace([(1, 2, 2), (2, 2, 3), (1, 4, 2)], (0, 1, 2))
    ends = [(0, 2, 4), (1, 3, 6), (0, 4, 6)]
    for stage, block in enumerate(ends[-1]):
        _, (middle, one), (fast, two) = space.map_sources(block, 2)
        assert (middle, fast) == ((1, ends[1][stage]), (0, ends[0][stage]))
        assert (one, two) == (f'1to2_{stage}_map', f'0to2_{stage}_map')
        for name, source in ((one, middle), (two, fast)):
            assert space.layers[name] == (source, Position(2, block))
        places = (Position(2, block), middle, fast)
        assert all(any(map(stitch.runs, places)) for stitch in space)
