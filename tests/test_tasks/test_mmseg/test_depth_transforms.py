import numpy as np
import pytest

from snnet_mm.tasks.mmseg import FixedCrop, RandomGammaColor
from snnet_mm.utils import isolated_rng


@pytest.fixture
def results():
    image = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    depth = image[..., 0].astype(np.float32)
    return dict(img=image, gt_depth_map=depth, seg_fields=['gt_depth_map'])


def test_fixed_crop_cuts_image_and_depth(results):
    image = results['img']
    cropped = FixedCrop(rows=(45, 472), cols=(43, 608))(dict(results))
    assert cropped['img_shape'] == cropped['gt_depth_map'].shape == (427, 565)
    np.testing.assert_array_equal(cropped['img'], image[45:472, 43:608])
    np.testing.assert_array_equal(cropped['gt_depth_map'], cropped['img'][..., 0])
    with pytest.raises(ValueError, match='rows, cols=.* is invalid'):
        FixedCrop(rows=(45, 481), cols=(43, 608))(results)


def test_random_gamma_color_formula_and_ranges(results):
    exact = dict(gamma=(1.1, 1.1), brightness=(0.5, 0.5), color=(0.9, 0.9))
    changed = RandomGammaColor(1, **exact)(dict(results))['img']
    expected = (results['img'] / 1.0) ** 1.1 * 0.5 * 0.9
    np.testing.assert_allclose(changed, expected.clip(0, 255), rtol=1e-5)
    assert changed.dtype == np.float32
    # Each channel of an image by a factor of its own, within all three ranges.
    grey = np.full((2, 2, 3), 100, np.uint8)
    with isolated_rng(0):
        images = [RandomGammaColor()(dict(img=grey))['img'] for _ in range(400)]
    drawn = np.stack([i[0, 0] for i in images if i.dtype == np.float32])
    assert 160 < len(drawn) < 240
    assert (np.ptp(drawn, axis=1) > 0).all()
    low, high = 100**0.9 * 0.75 * 0.9, 100**1.1 * 1.25 * 1.1
    assert low <= drawn.min() < 1.2 * low < 0.8 * high < drawn.max() <= high
