import cv2
import numpy as np
import pytest


@pytest.fixture
def images(tmp_path):
    """Two images of one name and different suffixes, and a third one."""
    random, folder = np.random.default_rng(0), tmp_path / 'images'
    folder.mkdir()
    for name in ('a.png', 'a.jpg', 'b.png'):
        cv2.imwrite(str(folder / name), random.integers(0, 256, (48, 64, 3), np.uint8))
    return folder


def test_image_demo_draws_a_picture_per_stitch(run_here, narrow, images, tmp_path):
    model = narrow / 'config.py', narrow / 'weights.pth', '--device', 'cpu'
    out, sheet = tmp_path / 'out', tmp_path / 's.png'
    args = images, *model, '--out-dir', out, '--stitch-id', '0,4', '--sheet', sheet
    printed = run_here('image_demo.py', *args)
    assert f'Wrote 6 to {out}' in printed
    assert sheet.read_bytes().startswith(b'\x89PNG')
    stems = 'a.png', 'a.jpg', 'b'
    assert {p.name for p in out.iterdir()} == {
        f'{stem}_stitch{i}.png' for stem in stems for i in (0, 4)
    }
    fast, slow = (cv2.imread(str(out / f'b_stitch{i}.png')) for i in (0, 4))
    for picture in (fast, slow):
        assert picture.shape[1] == 64
        assert picture.shape[0] > 48  # a legend
    assert (fast[:48] != slow[:48]).any()
    with pytest.raises(ValueError, match='stitch-id.* is invalid'):
        run_here('image_demo.py', images, *model, '--stitch-id', '0,x')
