import cv2
import numpy as np
import pytest

from snnet_mm.integrations.mmseg import LoadDepthMap


@pytest.fixture
def results(tmp_path):
    path = tmp_path / 'room.png'
    cv2.imwrite(str(path), np.array([[0, 1500], [250, 65535]], np.uint16))
    return dict(depth_map_path=str(path), ori_shape=(2, 2), seg_fields=[])


def test_millimetres_become_metres(results):
    depth = LoadDepthMap()(results)['gt_depth_map']
    np.testing.assert_allclose(depth, [[0, 1.5], [0.25, 65.535]], rtol=1e-6)
    assert depth.dtype == np.float32
    assert results['seg_fields'] == ['gt_depth_map']


def test_maps_and_scales_that_cannot_be(results):
    results['ori_shape'] = (2, 3)
    with pytest.raises(ValueError, match=r'room.png of shape \(2, 2\).* \(2, 3\)'):
        LoadDepthMap()(results)
    with pytest.raises(ValueError, match='factor=0; allowed: more than 0'):
        LoadDepthMap(depth_rescale_factor=0)
