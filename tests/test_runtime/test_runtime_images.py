"""Resizing in numpy."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from snnet_mm.runtime.images import best_class, resize_maps


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('size', [(41, 50), (12, 17), (12, 60), (5, 6)])
def test_maps_and_classes_are_those_of_torch(size, align_corners):
    maps = np.random.default_rng(0).standard_normal((7, 12, 17)).astype(np.float32)
    resized = resize_maps(maps, size, align_corners)
    mode = dict(mode='bilinear', align_corners=align_corners)
    wanted = interpolate(torch.from_numpy(maps)[None], size, **mode)[0].numpy()
    np.testing.assert_allclose(resized, wanted, atol=1e-5)
    classes = best_class(maps, size, align_corners)
    np.testing.assert_array_equal(classes, resized.argmax(0))
