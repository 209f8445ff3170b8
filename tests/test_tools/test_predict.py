import cv2
import numpy as np
import pytest
from old_torch import writes_onnx
from toy import smooth_images

from snnet_mm.runtime import StitchRuntime

pytestmark = writes_onnx
SIZES = (64, 64), (50, 90), (64, 64)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / 'images'
    folder.mkdir()
    for i, image in enumerate(smooth_images(SIZES)):
        cv2.imwrite(str(folder / f'{i}.png'), image[..., ::-1])
    (folder / 'broken.jpg').write_text('')
    return folder


def model_of(folder):
    return folder / 'config.py', folder / 'weights.pth'


def masks_in(folder):
    paths = sorted(folder.glob('*.png'))
    return {p.name: cv2.imread(str(p), cv2.IMREAD_UNCHANGED) for p in paths}


def test_a_bundle_and_a_checkpoint_predict_alike(
    run_here, bundle, narrow, images, tmp_path
):
    runtime = StitchRuntime(bundle)
    flops = runtime.stitches[0]['flops'] / 1e9 * 1.01
    for stitch, option in (
        (0, ('--stitch-id', 0)),
        (1, ('--stitch-id', 1)),
        (0, ('--budget', f'{flops:.6f}G')),
    ):
        folders = []
        for model in ((bundle,), (*model_of(narrow), '--device', 'cpu')):
            out = tmp_path / f'{len(model)}_{option[0]}_{stitch}'
            files, more = model[:2], model[2:]
            args = (*files, images, '--out', out, *option, *more, '--batch-size', 2)
            printed = run_here('predict.py', *args)
            assert 'Predicted 3 images, 0 were done before' in printed
            assert 'Skipped 1' in printed
            assert (out / 'unreadable.txt').read_text().startswith('broken.jpg\t')
            folders.append(masks_in(out))
        runtime.set_stitch(stitch)
        for i, image in enumerate(smooth_images(SIZES)):
            name = f'{i}.png'
            np.testing.assert_array_equal(folders[0][name], runtime(image))
            assert folders[1][name].shape == image.shape[:2]
            if len(image) == 64:  # others are resized for the graph alone
                np.testing.assert_array_equal(folders[1][name], runtime(image))
        assert len({*np.concatenate([m.ravel() for m in folders[0].values()])}) > 1
    assert 'Predicted 0 images, 3 were done before' in run_here('predict.py', *args)


def test_deadlines_and_refused_options(run_here, bundle, narrow, images, tmp_path):
    run_here(
        'predict.py', bundle, images, '--out', tmp_path / 'out', '--deadline', '1h'
    )
    assert masks_in(tmp_path / 'out').keys() == {'0.png', '1.png', '2.png'}
    out = ('--out', tmp_path)
    for wrong, message in {
        (bundle, images, '--deadline', '8'): "deadline='8' is invalid",
        (bundle, images, '--deadline', '1h', '--ray', 1): 'ray=1 is .* --deadline',
        (1, 2, 3, images): r'model=.* is invalid',
        (*model_of(narrow), images, '--threads', 1): 'threads=1 is invalid',
        (*model_of(narrow), images, '--deadline', '1h'): "deadline='1h' is invalid",
    }.items():
        with pytest.raises(ValueError, match=message):
            run_here('predict.py', *wrong, *out)


@pytest.mark.slow
def test_processes_on_ray_write_the_same(run_tool, bundle, images, tmp_path):
    pytest.importorskip('ray.data', reason='ray is missing')
    written = []
    for options in ((), ('--ray', 2)):
        out = tmp_path / f'out{len(options)}'
        printed = run_tool('predict.py', bundle, images, '--out', out, *options).stdout
        assert 'Skipped 1, listed in unreadable.txt' in printed
        files = [p for p in out.iterdir() if p.suffix != '.lock']
        written.append({p.name: p.read_bytes() for p in files})
    assert written[0] == written[1]
    assert len(written[0]) == 4
