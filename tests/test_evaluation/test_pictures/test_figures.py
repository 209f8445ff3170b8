import cv2
import numpy as np
import pytest

from snnet_mm.evaluation import as_picture, plot_images


def test_plot_images_rows_and_columns_over_legend(tmp_path, drawn_axes):
    rows = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 6, 3), np.uint8)
    titles, colors = ['image', 'truth', 'slow'], dict(sky=(255, 0, 51))
    plot_images(rows, titles, tmp_path / 'images.png', colors)
    drawn = [axes.images[0].get_array() for axes in drawn_axes]
    np.testing.assert_array_equal(drawn, rows.reshape(6, 4, 6, 3))
    assert [axes.get_title() for axes in drawn_axes] == [*titles, '', '', '']
    (legend,) = drawn_axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ['sky']
    assert legend.get_patches()[0].get_facecolor() == (1, 0, 0.2, 1)


def test_plot_images_very_tall_ones_fit(tmp_path):
    rows = [[np.zeros((3000, 1, 3), np.uint8)], [np.zeros((1, 3000, 3), np.uint8)]]
    plot_images(rows, ['image'], tmp_path / 'images.png')
    height, width = cv2.imread(str(tmp_path / 'images.png')).shape[:2]
    assert 3 < height / width < 5


@pytest.mark.parametrize('channels', [2, 4])
def test_as_picture_of_channels_and_floats(channels):
    image = np.arange(2 * 2 * channels, dtype=np.uint8).reshape(2, 2, channels)
    shown = as_picture(image)
    kept = [0, 1, 2] if channels > 2 else [0, 0, 0]
    assert np.array_equal(shown, image[..., kept])
    floats = np.float32(image) * 1000 - 500
    scaled = (floats[..., kept] - floats[..., kept].min()) / np.ptp(floats[..., kept])
    assert np.array_equal(as_picture(floats), (255 * scaled).round())
