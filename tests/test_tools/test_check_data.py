import json

import numpy as np
import pytest
from PIL import Image

CONFIG = 'configs/camvid/setr-naive_snnetv2-fast-slow_1xb8-500_camvid-240x176.py'


@pytest.fixture
def camvid(tmp_path):
    """Four images in the folders of CamVid."""
    for split in ('train', 'val'):
        for kind, shape in (('images', (6, 8, 3)), ('annotations', (6, 8))):
            folder = tmp_path / 'data' / kind / split
            folder.mkdir(parents=True)
            for i in range(2):
                pixels = np.arange(6 * 8, dtype='uint8').reshape(6, 8) % 11
                pixels = pixels if kind == 'annotations' else np.zeros(shape, 'uint8')
                suffix = 'png' if kind == 'annotations' else 'jpg'
                Image.fromarray(pixels).save(folder / f'{i}.{suffix}')
    return tmp_path / 'data'


def test_what_is_wrong_is_shown_and_the_code_is_one(camvid, tmp_path, run_here, capsys):
    root = [f'{s}_dataloader.dataset.data_root={camvid}' for s in ('train', 'val')]
    args = (CONFIG, '--split', 'train', 'val', '--out', tmp_path / 'out')
    tool = 'analysis_tools/check_data.py'
    with pytest.raises(SystemExit) as end:
        run_here(tool, *args, '--cfg-options', *root)
    assert end.value.code == 0
    assert '0 problems in 4 images' in capsys.readouterr().out

    labels = camvid / 'annotations/val/1.png'
    Image.fromarray(np.full((6, 8), 11, 'uint8')).save(labels)
    with pytest.raises(SystemExit) as end:
        run_here(tool, *args, '--cfg-options', *root)
    assert end.value.code == 1
    printed = capsys.readouterr().out
    assert 'labels outside the classes' in printed
    assert 'bicyclist' in printed
    assert '2 problems in 4 images' in printed
    train, val = json.loads((tmp_path / 'out/data_check.json').read_text())
    assert train['problems'] == []
    assert {p['kind']: p['count'] for p in val['problems']} == {
        'labels outside the classes': 1,
        'empty annotation': 1,
    }
    assert train['classes'][0] == dict(name='sky', count=10, images=2)
    assert val['classes'][0] == dict(name='sky', count=5, images=1)
    with Image.open(tmp_path / 'out/class_frequencies.png') as picture:
        assert picture.width > 500
