import copy

import pytest
import torch
from torch._dynamo.utils import counters

from snnet_mm.models import compile_blocks, set_stitch


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


BIASES = dict(biases=dict(type='StitchBiases'))
EAGER = dict(backend='eager', fullgraph=True)


@pytest.mark.parametrize(
    ('plugins', 'settings'),
    [({}, EAGER), (BIASES, EAGER), pytest.param({}, {}, marks=pytest.mark.slow)],
)
@torch.no_grad()
def test_each_kind_of_block_is_compiled_once_and_no_switch_compiles(
    build_snnet, plugins, settings
):
    net = build_snnet(depths=(3, 6), plugins=plugins).eval()
    compiled = copy.deepcopy(net)
    compile_blocks(compiled, **settings)
    assert list(compiled.state_dict()) == list(net.state_dict())
    images = torch.randn(2, 3, 32, 32)
    tolerance = dict(rtol=0, atol=0) if settings else {}
    for stitch in net.space:
        for model in (net, compiled):
            set_stitch(model, stitch.id)
        torch.testing.assert_close(compiled(images)[0], net(images)[0], **tolerance)
        if stitch.id == 1:  # both anchors have run
            assert counters['stats']['unique_graphs'] == 2
    assert counters['stats']['unique_graphs'] == 2
