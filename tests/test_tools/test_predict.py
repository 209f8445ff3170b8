import cv2
import numpy as np
import pytest
from launching import run_tool
from small import smooth_images

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
    printed = run_here('predict.py', bundle, images, '--out', out, '--stitch-id', 0)
    assert 'Predicted 0 images, 3 were done before' in printed
    # Masks of one stitch are not those of another, nor of a deadline of any length.
    with pytest.raises(ValueError, match='--force .*--out'):
        run_here('predict.py', bundle, images, '--out', out, '--stitch-id', 1)
    late = tmp_path / 'deadline'
    predict(run_here, bundle, images, '--deadline', '1h', out=late)
    again = run_here('predict.py', bundle, images, '--out', late, '--deadline', '9m')
    assert 'Predicted 0 images, 3 were done before' in again


def test_predict_fails_if_all_images_are_skipped(run_here, bundle, images, tmp_path):
    args = 'predict.py', bundle, images, '--out', tmp_path / 'out'
    for path in images.glob('*.png'):
        path.write_text('')
    for _ in range(2):
        with pytest.raises(ValueError, match='source=.*all 4 were skipped'):
            run_here(*args)
    listed = (tmp_path / 'out/unreadable.txt').read_text().splitlines()
    assert [line.split('\t')[0] for line in listed] == [
        *(f'{i}.png' for i in range(3)),
        'broken.jpg',
    ]
    cv2.imwrite(str(images / '0.png'), np.zeros((64, 64, 3), np.uint8))
    assert 'Predicted 1 images' in run_here(*args)
    assert 'Predicted 0 images, 1 were done before' in run_here(*args)


def test_predict_options_that_do_not_fit(run_here, images, tmp_path):
    for wrong, message in {
        ('bundle', images, '--deadline', '8'): "deadline='8' is invalid",
        ('bundle', images, '--deadline', '1h', '--ray', 1): 'ray=1 is .* --deadline',
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
        files = [p for p in out.iterdir() if p.suffix in ('.png', '.txt')]
        written.append({p.name: p.read_bytes() for p in files})
    assert written[0] == written[1]
    assert len(written[0]) == 4
