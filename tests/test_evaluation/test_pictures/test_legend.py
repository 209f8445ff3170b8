import numpy as np

from snnet_mm.evaluation import add_legend


def test_names_and_colours_are_under_the_picture():
    picture = np.full((20, 100, 3), 7, np.uint8)
    colors = dict(sky=(200, 10, 30), car=(0, 90, 250), bicyclist=[5, 6, 7])
    drawn = add_legend(picture, colors)
    assert np.array_equal(drawn[:20], picture)
    legend = drawn[20:]
    assert legend.shape == (32, 100, 3)  # two lines, of which the first holds two
    assert legend[8, 8].tolist() == [30, 10, 200]
    found = (legend == (250, 90, 0)).all(-1)
    assert found[:16].any()
    assert not found[16:].any()
    assert legend[24, 8].tolist() == [7, 6, 5]
    assert (legend[:16, 16:].min(axis=-1) < 80).sum() > 20  # the name
    assert np.array_equal(add_legend(picture, {}), picture)
