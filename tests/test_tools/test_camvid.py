import cv2
import numpy as np
import pytest

TOOL = 'dataset_converters/camvid.py'


def test_unlabelled_pixels_become_void(run_here, tmp_path):
    source, target = tmp_path / 'source', tmp_path / 'target'
    label = np.array([[0, 10], [11, 3]], np.uint8)
    for part in ('train', 'val'):
        for name, array in ((part, np.zeros((2, 2, 3))), (f'{part}annot', label)):
            (source / name).mkdir(parents=True)
            cv2.imwrite(str(source / name / 'a.png'), array)
    assert run_here(TOOL, source, target).count('1 images and labels') == 2
    assert (target / 'images/val/a.jpg').exists()
    written = cv2.imread(str(target / 'annotations/train/a.png'), -1)
    assert written.tolist() == [[0, 10], [255, 3]]
    with pytest.raises(ValueError, match=r'a folder with train/\*.png'):
        run_here(TOOL, target, target)
