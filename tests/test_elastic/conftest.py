from types import SimpleNamespace

import pytest
from running_here import run_here  # noqa: F401

from snnet_mm.elastic import step_costs
from snnet_mm.stitching import Position


def measured(model, size, **kwargs):
    """Each head takes 10 ms, each neuron 1 and each map 3; all else 100."""
    parts = {
        Position(0, i): (10, 1)[i % 2] * n for i, n in enumerate((2, 32, 2, 32, 0))
    }
    for name in model.space.layers:
        step, units = model.space.narrow.get(name, (1, 3))
        parts[name] = (10, 1)[step % 2] * units
    return SimpleNamespace(by_stitch={0: 204.0}, by_part=parts)


@pytest.fixture(scope='module')
def milliseconds():
    """Milliseconds of a ViT of two blocks, 2 heads and 32 neurons, not measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_costs, 'measure_latency', measured)
        yield
