import cv2
import numpy as np
import pytest
from toy import smooth_images

import snnet_mm as sn
from snnet_mm.runtime import StitchRuntime

SIZES = (64, 64), (50, 90), (64, 64)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / 'images'
    folder.mkdir()
    for i, image in enumerate(smooth_images(SIZES)):
        cv2.imwrite(str(folder / f'{i}.png'), image[..., ::-1])
    (folder / 'broken.jpg').write_text('')
    return folder


def masks_in(folder):
    paths = sorted(folder.glob('*.png'))
    return {p.name: cv2.imread(str(p), cv2.IMREAD_UNCHANGED) for p in paths}


def predict(run_here, *args, out):
    printed = run_here('predict.py', *args, '--out', out, '--batch-size', 2)
    assert 'Predicted 3 images, 0 were done before' in printed
    assert 'Skipped 1' in printed
    assert (out / 'unreadable.txt').read_text().startswith('broken.jpg\t')
    assert len({*np.concatenate([m.ravel() for m in masks_in(out).values()])}) > 1
    return masks_in(out)


def test_predict_bundle(run_here, bundle, images, tmp_path):
    runtime = StitchRuntime(bundle)
    for stitch, option in ((1, ('--stitch-id', 1)), (0, ('--budget', '1.5G'))):
        out = tmp_path / f'{stitch}'
        found = predict(run_here, bundle, images, *option, out=out)
        runtime.set_stitch(stitch)
        for i, image in enumerate(smooth_images(SIZES)):
            np.testing.assert_array_equal(found[f'{i}.png'], runtime(image))
    printed = run_here('predict.py', bundle, images, '--out', out)
    assert 'Predicted 0 images, 3 were done before' in printed


def test_predict_checkpoint(run_here, narrow, images, tmp_path):
    checkpoint = narrow / 'config.py', narrow / 'weights.pth'
    model, files = sn.load(*checkpoint, device='cpu'), sorted(images.glob('*.png'))
    flops = sn.measure(model)[0].flops / 1e9 * 1.01
    for stitch, option in ((1, ('--stitch-id', 1)), (0, ('--budget', f'{flops}G'))):
        args = *checkpoint, images, *option, '--device', 'cpu'
        found = predict(run_here, *args, out=tmp_path / f'{stitch}')
        sn.set_stitch(model, stitch)
        wanted = sn.predict(model, [*map(str, files)])
        for path, mask in zip(files, wanted, strict=True):
            np.testing.assert_array_equal(found[path.name], mask)


def test_predict_deadline(run_here, bundle, images, tmp_path):
    out = tmp_path / 'out'
    run_here('predict.py', bundle, images, '--out', out, '--deadline', '1h')
    assert masks_in(out).keys() == {'0.png', '1.png', '2.png'}


def test_predict_options_that_do_not_fit(run_here, bundle, narrow, images, tmp_path):
    checkpoint = narrow / 'config.py', narrow / 'weights.pth', images
    for wrong, message in {
        (bundle, images, '--deadline', '8'): "deadline='8' is invalid",
        (1, 2, 3, images): r'model=.* is invalid',
        (*checkpoint, '--threads', 1): 'threads=1 is invalid',
    }.items():
        with pytest.raises(ValueError, match=message):
            run_here('predict.py', *wrong, '--out', tmp_path)
