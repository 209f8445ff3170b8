"""Scenes hold what their maps and masks say."""

import numpy as np

from snnet_mm.datasets.toy_drawing import (
    BAR,
    BOX,
    CAMERA_HEIGHT,
    DISK,
    GROUND,
    MAX_GROUND_DEPTH,
    SKY,
    SKY_DEPTH,
    TRIANGLE,
    draw_scene,
)


def draw(num, size=(64, 64), num_objects=(3, 7)):
    return [draw_scene(np.random.default_rng(i), size, num_objects) for i in range(num)]


def test_maps_are_composed_of_the_masks():
    scenes = draw(100)
    for scene in scenes:
        assert (scene.masks.sum(0) <= 1).all()
        assert (scene.semantic[~scene.masks.any(0)] <= GROUND).all()
        for label, mask in zip(scene.labels, scene.masks, strict=True):
            assert (scene.semantic[mask] == label).all()
            assert len(np.unique(scene.depth[mask])) <= 1
        # Far to near; what is hidden has no depth.
        depths = [scene.depth[m][0] for m in scene.masks if m.any()]
        assert depths == sorted(depths, reverse=True)
    assert {len(s.labels) for s in scenes} == {3, 4, 5, 6, 7}
    assert {label for s in scenes for label in s.labels} == {DISK, BOX, TRIANGLE, BAR}
    assert any(not m.any() for s in scenes for m in s.masks)


def test_surfaces_have_the_depth_of_a_camera_over_flat_ground():
    for scene in draw(20, num_objects=(0, 0)):
        assert scene.masks.shape == (0, 64, 64)
        assert (scene.depth[scene.semantic == SKY] == SKY_DEPTH).all()
        assert scene.depth[scene.semantic == GROUND].max() == MAX_GROUND_DEPTH
        column = scene.depth[:, 0]
        plain = column[column < MAX_GROUND_DEPTH]
        # Inverse depth grows by 1 / (focal length * camera height) per row.
        step = 1 / (64 * CAMERA_HEIGHT)
        np.testing.assert_allclose(np.diff(1 / plain), step, rtol=1e-3)
        assert len(plain) > 20
