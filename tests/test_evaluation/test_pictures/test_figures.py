import numpy as np

from snnet_mm.evaluation import plot_images


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
