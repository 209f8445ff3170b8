import numpy as np

from snnet_mm.evaluation import add_legend, plot_images


def test_all_depths_share_one_scale(tmp_path, drawn_axes):
    truth = np.array([[0, 1.5, 2], [3, 4, 6]], np.float32)
    image = np.zeros((2, 3, 3), np.uint8)
    rows = [[image, truth / scale, truth + 1] for scale in (1, 2)]
    plot_images(rows, ['image', 'truth', 'slow'], tmp_path / 'depth.png', 6)
    *cells, bar = drawn_axes
    assert bar.get_ylabel() == 'depth (m)'
    depths = [axes.images[0] for i, axes in enumerate(cells) if i % 3]
    assert {d.get_clim() for d in depths} == {(0, 6)}
    np.testing.assert_array_equal(depths[0].get_array().mask, truth == 0)
    np.testing.assert_array_equal(depths[3].get_array(), truth + 1)


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
