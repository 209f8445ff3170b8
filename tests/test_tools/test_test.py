import json
from pathlib import Path

import pytest

CONFIG = 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


@pytest.fixture(scope='module')
def checkpoint(demo):
    return demo[0] / Path(CONFIG).stem / 'iter_3.pth'


def test_stitch_ids_are_tested_as_in_the_demo(run_tool, demo, checkpoint, tmp_path):
    args = (CONFIG, checkpoint, '--stitch-id', '0,9,14', '--work-dir', tmp_path)
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')
    done = run_tool('test.py', *args, *options)
    (written,) = tmp_path.glob('*/stitches.json')
    tested = {s['id']: s for s in json.loads(written.read_text())['stitches']}
    assert list(tested) == [0, 9, 14]
    of_demo = json.loads((demo[0] / 'stitches.json').read_text())['stitches']
    assert [s for s in of_demo if s['id'] in tested] == list(tested.values())
    assert 'slow[0:2] > fast[1:2] > slow[4:8]' in done.stdout


def test_a_wrong_stitch_id_ends_in_words(run_tool, checkpoint, tmp_path):
    args = (CONFIG, checkpoint, '--stitch-id', 5, '--work-dir', tmp_path)
    done = run_tool('test.py', *args, ok=False)
    assert done.stderr.splitlines()[-1] == (
        'ValueError: stitch id 5 is not in the stitching space; allowed are 0-4, 6-14'
    )
    assert not list(tmp_path.glob('*/stitches.json'))
