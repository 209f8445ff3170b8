"""tools/image_demo.py and tools/video_demo.py."""

import re
import sys

import cv2
import numpy as np
import pytest

FRAMES = 12


def test_image_demo_draws_a_picture_for_every_stitch(run_here, narrow, tmp_path):
    random, out, sheet = np.random.default_rng(0), tmp_path / 'out', tmp_path / 's.png'
    for name in 'ab':
        image = random.integers(0, 256, (48, 64, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f'{name}.jpg'), image)
    model = narrow / 'config.py', narrow / 'weights.pth', '--device', 'cpu'
    args = tmp_path, *model, '--out-dir', out, '--stitch-id', '0,4', '--sheet', sheet
    printed = run_here('image_demo.py', *args)
    names = [f'{n}_stitch{i}.png' for i in (0, 4) for n in 'ab']
    assert f'Wrote 4 to {out}' in printed
    assert f'Wrote {sheet}' in printed
    assert sheet.read_bytes().startswith(b'\x89PNG')
    assert {p.name for p in out.iterdir()} == set(names)
    pictures = [cv2.imread(str(out / name)) for name in names]
    assert all(p.shape[1] == 64 and p.shape[0] > 48 for p in pictures)  # a legend
    assert (pictures[0][:48] != pictures[2][:48]).any()
    args = tmp_path / 'a.jpg', *model, '--out-file', tmp_path / 'drawn.png'
    run_here('image_demo.py', *args, '--stitch-id', 4)
    assert np.array_equal(cv2.imread(str(tmp_path / 'drawn.png')), pictures[2])
    for more, key in (
        (('--stitch-id', '0,1'), 'out-file'),
        (('--out-file', 'c.txt'), r'c\.txt'),
    ):
        with pytest.raises(ValueError, match=f'{key}.* is invalid'):
            run_here('image_demo.py', *args, *more)


def test_image_demo_keeps_suffixes_of_twins(run_here, narrow, tmp_path):
    for name in ('a.png', 'a.jpg'):
        cv2.imwrite(str(tmp_path / name), np.zeros((48, 64, 3), np.uint8))
    model = narrow / 'config.py', narrow / 'weights.pth', '--device', 'cpu'
    run_here('image_demo.py', tmp_path, *model, '--out-dir', tmp_path / 'both')
    names = {p.name for p in (tmp_path / 'both').iterdir()}
    assert names == {'a.png.png', 'a.jpg.png'}


@pytest.mark.parametrize(
    ('tool', 'number', 'out'),
    [('image_demo.py', 1, '--out-dir'), ('export_stitch.py', 0, '--out')],
)
def test_tool_refuses_files_before_it_builds_the_model(
    run_here, narrow, tmp_path, monkeypatch, tool, number, out
):
    def build(*args, **kwargs):
        raise AssertionError('a model was built')

    # The package has a function of the module's name.
    module = sys.modules['snnet_mm.inference.init_model']
    monkeypatch.setattr(module, 'init_model', build)
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((48, 64, 3), np.uint8))
    (tmp_path / 'file').write_text('')
    for message, checkpoint, folder in (
        ('does not exist; did you mean .weights.pth.', 'weight.pth', tmp_path),
        ('cannot be written', 'weights.pth', tmp_path / 'file'),
    ):
        images = (tmp_path,) * number
        args = *images, narrow / 'config.py', narrow / checkpoint, '--stitch-id', 0
        with pytest.raises(ValueError, match=message):
            run_here(tool, *args, out, folder / 'out')


def test_video_demo_paints_every_frame(run_here, bundle, tmp_path):
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
