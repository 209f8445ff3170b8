import cv2
import numpy as np
import pytest
from launching import run_tool
from toy import smooth_images

import snnet_mm as sn

SIZES = (64, 64), (50, 90), (64, 64)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / 'images'
    folder.mkdir()
    for i, image in enumerate(smooth_images(SIZES)):
        cv2.imwrite(str(folder / f'{i}.png'), image[..., ::-1])
    (folder / 'broken.jpg').write_text('')
    return folder


def predict(run_here, *args, out):
    """Return the masks that the tool writes."""
    printed = run_here('predict.py', *args, '--out', out, '--batch-size', 2)
    assert 'Predicted 3 images, 0 were done before' in printed
    assert 'Skipped 1' in printed
    paths = [out / f'{i}.png' for i in range(3)]
    masks = [cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in paths]
    assert len({*np.concatenate([mask.ravel() for mask in masks])}) > 1
    return masks


def test_predict_bundle(run_here, bundle, images, tmp_path):
    runtime = sn.Runtime(bundle)
    for stitch, option in ((1, ('--stitch-id', 1)), (0, ('--budget', '1.5G'))):
        out = tmp_path / f'{stitch}'
        found = predict(run_here, bundle, images, *option, out=out)
        runtime.set_stitch(stitch)
        for mask, image in zip(found, smooth_images(SIZES), strict=True):
            np.testing.assert_array_equal(mask, runtime(image))
    printed = run_here('predict.py', bundle, images, '--out', out)
    assert 'Predicted 0 images, 3 were done before' in printed
    predict(run_here, bundle, images, '--deadline', '1h', out=tmp_path / 'deadline')


def test_predict_checkpoint(run_here, narrow, images, tmp_path):
    checkpoint = narrow / 'config.py', narrow / 'weights.pth'
    model, files = sn.load(*checkpoint, device='cpu'), sorted(images.glob('*.png'))
    args = *checkpoint, images, '--stitch-id', 1, '--device', 'cpu'
    found = predict(run_here, *args, out=tmp_path / 'out')
    sn.set_stitch(model, 1)
    wanted = sn.predict(model, [*map(str, files)])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_predict_options_that_do_not_fit(run_here, narrow, images, tmp_path):
    checkpoint = narrow / 'config.py', narrow / 'weights.pth', images
    for wrong, message in {
        ('bundle', images, '--deadline', '8'): "deadline='8' is invalid",
        ('bundle', images, '--deadline', '1h', '--ray', 1): 'ray=1 is .* --deadline',
        (1, 2, 3, images): r'model=.* is invalid',
        (*checkpoint, '--threads', 1): 'threads=1 is invalid',
    }.items():
        with pytest.raises(ValueError, match=message):
            run_here('predict.py', *wrong, '--out', tmp_path)


@pytest.mark.slow
def test_predict_on_ray_writes_the_same(bundle, images, tmp_path):
    pytest.importorskip('ray.data', reason='ray is missing')
    written = []
    for options in ((), ('--ray', 2)):
        out = tmp_path / f'out{len(options)}'
        run_tool('predict.py', bundle, images, '--out', out, *options)
        files = [p for p in out.iterdir() if p.suffix != '.lock']
        written.append({p.name: p.read_bytes() for p in files})
    assert written[0] == written[1]
    assert len(written[0]) == 4
