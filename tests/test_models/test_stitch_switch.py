import pytest
import torch
import torch.nn.functional as F
from torch import nn

from snnet_mm.models import find_stitched_backbone, set_input_size, set_stitch


class Listener(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.heard, self.net = [], (net,)

    def on_stitch(self, stitch):
        assert self.net[0].active_stitch is stitch  # switched by now
        self.heard.append(stitch)


def test_set_stitch_notifies_every_listener_once(build_snnet):
    """Also in a wrapped model; an unknown id notifies nobody."""
    net = build_snnet()
    deep, shallow = Listener(net), Listener(net)
    parts = net, nn.Sequential(nn.Identity(), deep), shallow, shallow
    # Under another name, as in DDP and test-time augmentation.
    model = nn.ModuleDict(dict(module=nn.Sequential(*parts)))
    assert find_stitched_backbone(model) is net
    set_stitch(model, 8)
    assert net.active_stitch is net.space[8]
    set_stitch(model, 0)
    for wrong in (4, True, [1]):
        with pytest.raises(ValueError, match='backbone.stitch_ids'):
            set_stitch(model, wrong)
    assert deep.heard == shallow.heard == [net.space[8], net.space[0]]
    assert net.active_stitch.id == 0


@pytest.mark.parametrize('number', [0, 2])
def test_find_stitched_backbone_none_or_two_are_refused(build_snnet, number):
    model = nn.ModuleList(build_snnet() for _ in range(number))
    with pytest.raises(ValueError, match='model.backbone'):
        find_stitched_backbone(model)


@torch.no_grad()
def test_set_input_size_equals_images_of_that_size(build_snnet):
    net, images = build_snnet().eval(), torch.randn(2, 3, 40, 56)
    small = F.interpolate(images, (24, 33), mode='bilinear', antialias=True)
    given, expected = net(images)[0], {}
    for i in (6, 8):
        set_stitch(net, i)
        expected[i] = net(small)[0]
    with net.sharing_prefixes():
        # Neither size meets states of the other.
        for i in (6, 8):
            set_stitch(net, i)
            for size in ((24, 33), (16, 16), (24, 33)):
                set_input_size(net, size)
                found = net(images)[0]
                assert found.equal(expected[i]) == (size != (16, 16))
    set_input_size(net, (40, 57))
    with pytest.raises(ValueError, match='sizes'):
        net(images)
    set_input_size(net, None)
    set_stitch(net, 1)
    assert net(images)[0].equal(given)
