"""tools/image_demo.py and tools/video_demo.py."""

import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from old_torch import writes_onnx

from snnet_mm.inference.init_model import init_model

ROOT = Path(__file__).parents[2]
CONFIG = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
CONFIG = str(ROOT / 'configs' / CONFIG)
FRAMES = 12


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    model = init_model(CONFIG, None, device='cpu')
    path = tmp_path_factory.mktemp('weights') / 'a.pth'
    torch.save(dict(state_dict=model.state_dict()), path)
    return path


def test_every_stitch_gives_a_picture_of_its_own(run_here, checkpoint, tmp_path):
    random = np.random.default_rng(0)
    for name in 'ab':
        image = random.integers(0, 256, (48, 64, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f'{name}.jpg'), image)
    out = tmp_path / 'out'
    args = (tmp_path, CONFIG, checkpoint, '--device', 'cpu', '--out-dir', out)
    sheet = tmp_path / 'sheet.png'
    printed = run_here('image_demo.py', *args, '--stitch-id', '0,22', '--sheet', sheet)
    names = [f'{n}_stitch{i}.png' for i in (0, 22) for n in 'ab']
    assert f'Wrote 4 to {out}' in printed
    assert f'Wrote {sheet}' in printed
    assert sheet.read_bytes().startswith(b'\x89PNG')
    assert {p.name for p in out.iterdir()} == set(names)
    pictures = [cv2.imread(str(out / name)) for name in names]
    assert all(p.shape[1] == 64 and p.shape[0] > 48 for p in pictures)  # a legend
    assert (pictures[0][:48] != pictures[2][:48]).any()
    args = (tmp_path / 'a.jpg', *args[1:5], '--out-file', tmp_path / 'drawn.png')
    run_here('image_demo.py', *args, '--stitch-id', 22)
    assert np.array_equal(cv2.imread(str(tmp_path / 'drawn.png')), pictures[2])
    with pytest.raises(ValueError, match='out-file=.* is invalid'):
        run_here('image_demo.py', *args, '--stitch-id', '0,1')
    with pytest.raises(ValueError, match=r"c\.txt' is invalid"):
        run_here('image_demo.py', *args, '--out-file', 'c.txt')
    # Files whose names differ in their ends alone have pictures of their own.
    twins = tmp_path / 'twins'
    twins.mkdir()
    for name in ('a.png', 'a.jpg'):
        cv2.imwrite(str(twins / name), np.zeros((48, 64, 3), np.uint8))
    args = (twins, *args[1:5], '--out-dir', tmp_path / 'both')
    run_here('image_demo.py', *args)
    names = {p.name for p in (tmp_path / 'both').iterdir()}
    assert names == {'a.png.png', 'a.jpg.png'}


@writes_onnx
def test_a_video_is_painted_frame_by_frame(run_here, bundle, tmp_path):
    """Frames of one colour each, 96x64 pixels, 10 fps."""
    path, out = tmp_path / 'a.avi', tmp_path / 'out.avi'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'MJPG'), 10, (96, 64))
    for n in range(FRAMES):
        writer.write(np.full((64, 96, 3), 20 * n, np.uint8))
    writer.release()
    args = (path, bundle, '--output-file', out)
    for options, stitch in (
        (('--target-fps', 1e-3), 1),
        (('--target-fps', 1e6), '[01]'),  # the faster one, as measured
        (('--stitch-id', 0), 0),
    ):
        printed = run_here('video_demo.py', *args, *options)
        assert f'{FRAMES} frames;' in printed
        assert re.search(f'frames by stitch: {stitch}: {FRAMES}\n', printed)
    capture = cv2.VideoCapture(str(out))
    frames = [capture.read()[1] for _ in range(FRAMES)]
    assert not capture.read()[0]
    assert frames[0].shape == (64, 96, 3)
    # Below the caption half of the brightness is the image's.
    brightness = [f[40:52, :48].mean() for f in frames]
    assert brightness[-1] - brightness[0] == pytest.approx(0.5 * 220, abs=25)
    assert frames[0][58:].mean() > 100  # the legend, on a black image
    assert {p.name for p in tmp_path.iterdir()} == {'a.avi', 'out.avi'}


@pytest.mark.parametrize(
    ('tool', 'before', 'out'),
    [
        ('image_demo.py', True, ('--out-dir', 'out')),
        ('export_stitch.py', False, ('--out', 'out')),
    ],
)
def test_what_is_wrong_is_refused_before_the_model_is_built(
    run_here, checkpoint, tmp_path, tool, before, out, monkeypatch
):
    def build(*args, **kwargs):
        raise AssertionError('a model was built')

    # The package has a function of the module's name.
    module = sys.modules['snnet_mm.inference.init_model']
    monkeypatch.setattr(module, 'init_model', build)
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((48, 64, 3), np.uint8))
    (tmp_path / 'file').write_text('')
    missing = Path(checkpoint).with_name('b.pth')
    for message, path, stitch, folder in (
        ('does not exist; did you mean .a.pth.', missing, 0, tmp_path),
        ('cannot be written', checkpoint, 0, tmp_path / 'file'),
    ):
        args = (tmp_path,) * before + (CONFIG, path, out[0], folder / out[1])
        with pytest.raises(ValueError, match=message):
            run_here(tool, *args, '--stitch-id', stitch)
