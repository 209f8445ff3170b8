import pytest

from snnet_mm.bridging import BridgeSpace
from snnet_mm.bridging.bridge_space import joint_between, stages_to_bridge
from snnet_mm.stitching import Position, prior_scores

RESNET = range(3), range(3, 7), range(7, 13), range(13, 16)
SWIN = range(2), range(2, 4), range(4, 10), range(10, 12)


def test_routes_are_the_pairs():
    space = BridgeSpace((16, 12), [(1, 11), (4, 5)])
    assert space.ids == (0, 1, 2, 3)
    assert space.anchor_ids == (0, 1)
    assert [space.describe(space[i]) for i in (2, 3)] == [
        'fast[0:1] > slow[11:12]',
        'fast[0:4] > slow[5:12]',
    ]
    assert space.layers['0to1_4_5'] == (Position(0, 3), Position(1, 4))
    assert space[3].layers == ('0to1_4_5',)
    assert BridgeSpace((16, 12), [(1, 11), (4, 5)], ids=[3]).ids == (0, 1, 3)


def test_maps_are_those_of_blocks_that_all_routes_run():
    space = BridgeSpace((16, 12), [(1, 5), (4, 7)], maps=True)
    assert space.ids == (1, 2, 3)
    assert space.substitutes(7) == ()
    with pytest.raises(ValueError, match='out_indices=6; .* 7 to 11'):
        space.substitutes(6)
    with pytest.raises(ValueError, match="allowed: 'end'"):
        BridgeSpace((16, 12), [(1, 5)]).substitutes(7)


def test_there_is_no_guess_at_what_is_good():
    with pytest.raises(
        ValueError, match='no guess is made for a BridgeSpace .option: --results'
    ):
        prior_scores(BridgeSpace((16, 12), [(1, 5)]), {0: 1, 1: 1, 2: 1})


def test_stages_and_joints_of_the_paper():
    resnet, swin = stages_to_bridge(RESNET), stages_to_bridge(SWIN)
    assert resnet == RESNET
    vit = stages_to_bridge([range(12)])
    assert vit == (range(3), range(3, 6), range(6, 9), range(9, 12))
    wanted = [range(2), range(2, 4), range(4, 5), range(5, 6)]
    assert list(stages_to_bridge([range(6)])) == wanted
    # Behind the first blocks; within a stage up to its end.
    joints = [joint_between(resnet, swin, 0, y) for y in range(4)]
    assert joints == [(1, 2), (1, 3), (1, 5), (1, 11)]
    assert joint_between(resnet, vit, 1, 3) == (4, 10)
    assert joint_between(resnet, resnet, 2, 2) == (8, 13)


@pytest.mark.parametrize(
    ('depths', 'joints', 'message'),
    [
        ((12, 12), [(0, 3)], 'i from 1 to 12'),
        ((12, 12), [(3, 12)], 'j from 1 to 11'),
        ((12, 12), [(3, 4), (3, 4)], 'different pairs'),
        ((12, 12), [], 'different pairs'),
        ((12, 12, 12), [(3, 4)], 'two networks'),
    ],
)
def test_wrong_joints_are_refused(depths, joints, message):
    with pytest.raises(ValueError, match=message):
        BridgeSpace(depths, joints)


def test_wrong_stages_are_refused():
    with pytest.raises(ValueError, match=r'\(0, 4\); allowed: 0 to 3'):
        joint_between(SWIN, SWIN, 0, 4)
    with pytest.raises(ValueError, match='leave a block'):
        joint_between(SWIN, SWIN, 3, 3)
    with pytest.raises(ValueError, match='=3; allowed: networks of one'):
        stages_to_bridge([range(3)])
