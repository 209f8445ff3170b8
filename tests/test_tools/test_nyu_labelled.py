import cv2
import h5py
import numpy as np
import pytest
from mmseg.datasets import NYUDataset
from scipy.io import savemat

TOOL = 'dataset_converters/nyu_labelled.py'
SIZE = (24, 32)
SCENES = ('office_kitchen', 'bathroom', 'office_kitchen')


@pytest.fixture
def official(tmp_path):
    """Three small images in the structure of the official files.

    Image i is of one colour, blue 10 i, green 100, red 200, with a ramp of depths.
    """
    path = tmp_path / 'labelled.mat'
    rgb = np.empty((3, *SIZE, 3), np.uint8)
    rgb[..., 0], rgb[..., 1] = 200, 100
    rgb[..., 2] = 10 * np.arange(3)[:, None, None]
    depth = np.arange(SIZE[0] * SIZE[1], dtype=np.float32).reshape(SIZE) / 128
    depths = np.stack([depth + i for i in range(3)])
    with h5py.File(path, 'w') as file:
        file['images'] = rgb.transpose(0, 3, 2, 1)
        depths[:, 5, 7] = 0  # a hole
        file['rawDepths'] = depths.transpose(0, 2, 1)
        file.create_dataset('sceneTypes', (1, 3), h5py.ref_dtype)
        for i, name in enumerate(SCENES):
            letters = np.array([[ord(c)] for c in name], np.uint16)
            place = file.create_dataset(f'#refs#/{i}', data=letters)
            file['sceneTypes'][0, i] = place.ref
    savemat(tmp_path / 'splits.mat', dict(trainNdxs=[[1], [2]], testNdxs=[[3]]))
    return path, tmp_path / 'splits.mat', tmp_path / 'nyu', depths


def test_nyu_labelled_writes_layout_of_mmseg(official, run_here):
    labelled, splits, out, depths = official
    printed = run_here(TOOL, labelled, splits, out)
    assert '2 train images and 1 test images' in printed
    found = []
    for split in ('train', 'test'):
        folders = dict(img_path=f'images/{split}')
        folders['depth_map_path'] = f'annotations/{split}'
        found += NYUDataset(data_root=str(out), data_prefix=folders).load_data_list()
    numbers = [2, 1, 3]  # sorted by name within a split
    names = ['bathroom_00002', 'office_kitchen_00001', 'office_kitchen_00003']
    kitchen = NYUDataset.METAINFO['classes'].index('office_kitchen')
    for info, number, name in zip(found, numbers, names, strict=True):
        assert info['img_path'].endswith(f'{name}.jpg')
        assert (info['category_id'] == kitchen) is (number != 2)
        image = cv2.imread(info['img_path'])
        assert image.shape == (*SIZE, 3)
        colour = (10 * (number - 1), 100, 200)
        np.testing.assert_allclose(image.mean((0, 1)), colour, atol=2)
        expected = (depths[number - 1] * 1000).round()
        written = cv2.imread(info['depth_map_path'], cv2.IMREAD_UNCHANGED)
        assert written.dtype == np.uint16
        np.testing.assert_array_equal(written, expected)
