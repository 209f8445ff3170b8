import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from snnet_mm.evaluation import plot_routes
from snnet_mm.evaluation.pictures import route_plot
from snnet_mm.stitching import TwoWaySpace

FAST, SLOW = route_plot.ANCHOR_COLORS[:2]


@pytest.fixture
def draw(drawn_axes, tmp_path):
    """Draw, and get colours of the blocks of every panel, row by row, and its dots."""

    def run(space, **kwargs):
        drawn_axes.clear()
        plot_routes(space, tmp_path / 'routes.png', **kwargs)
        assert (tmp_path / 'routes.png').read_bytes().startswith(b'\x89PNG')
        panels = {}
        for axes in drawn_axes:
            boxes = [p for p in axes.patches if isinstance(p, Rectangle)]
            colors = iter([to_hex(p.get_facecolor()) for p in boxes])
            rows = [[next(colors) for _ in range(depth)] for depth in space.depths]
            dots = sum(line.get_marker() == 'o' for line in axes.lines)
            panels[axes.get_title(loc='left')] = rows, dots, axes
        return panels

    return run


def test_a_route_colours_what_it_runs_and_has_a_dot_per_joint(draw):
    panels = draw(TwoWaySpace((3, 6)), ids=[6, 1])
    space = TwoWaySpace((3, 6))
    pale = route_plot.UNUSED_COLOR
    assert [s.begin for s in space[6].segments] == [0, 2]
    rows, dots, axes = panels[f'6   SF:  {space.describe(space[6])}']
    assert rows == [[pale] * 2 + [FAST], [SLOW] * 4 + [pale] * 2]
    assert dots == 1
    # From the end of slow block 3 up to fast block 2, at two thirds.
    (crossing,) = (line for line in axes.lines if line.get_marker() != 'o')
    assert crossing.get_xydata().ravel() == pytest.approx([2 / 3, -1, 2 / 3, 0])
    rows, dots, _ = panels['1   slow[0:6]']
    assert (rows, dots) == ([[pale] * 3, [SLOW] * 6], 0)
    rows, _, axes = panels['where the 8 stitches may change anchor']
    assert rows == [[FAST] * 3, [SLOW] * 6]
    arrows = [t for t in axes.texts if getattr(t, 'arrow_patch', None)]
    assert len(arrows) == 4  # two boundaries, both ways
