"""tools/dataset_converters/color_masks.py."""

import cv2
import numpy as np
import pytest

TOOL = 'dataset_converters/color_masks.py'


def test_color_masks_numbers_colours(run_here, tmp_path):
    mask = np.zeros((2, 4, 3), np.uint8)
    mask[0, 1:], mask[1, 3] = (255, 0, 0), (0, 128, 255)  # RGB
    (folder := tmp_path / 'masks' / 'train').mkdir(parents=True)
    cv2.imwrite(str(folder / 'a.png'), mask[..., ::-1])
    masks, labels = tmp_path / 'masks', tmp_path / 'labels'
    assert run_here(TOOL, masks).splitlines() == [
        '000000: 50.00 % of the pixels',
        'ff0000: 37.50 % of the pixels',
        '0080ff: 12.50 % of the pixels',
    ]
    printed = run_here(TOOL, masks, labels, '--colors', 'ff0000', '0080ff')
    assert '000000: 50.00 % of the pixels, label 255' in printed
    assert 'ff0000: 37.50 % of the pixels, label 0' in printed
    found = cv2.imread(str(labels / 'train' / 'a.png'), cv2.IMREAD_UNCHANGED)
    assert found.tolist() == [[255, 0, 0, 0], [255, 255, 255, 1]]
    for wrong, words in (
        ([masks, labels, '--colors', 'red'], 'such as ff0000'),
        ([masks, labels], 'labels=.* is invalid'),
        ([labels / 'none'], 'a folder with'),
    ):
        with pytest.raises(ValueError, match=words):
            run_here(TOOL, *wrong)
