"""The depth estimator's ways to infer, on a small stitched backbone."""

import pytest
import torch
import torch.nn.functional as F
from mmseg.structures import SegDataSample


@torch.no_grad()
def test_slide_mode_slides(build, predict, randomise):
    crops = dict(mode='slide', crop_size=(32, 64), stride=(32, 32))
    model = randomise(build(crops)).eval()
    images = torch.randn(2, 3, 64, 96)
    total, count = torch.zeros(2, 1, 64, 96), torch.zeros(64, 96)
    for y in (0, 32):
        for x in (0, 32):
            window = (..., slice(y, y + 32), slice(x, x + 64))
            total[window] += model(images[window])
            count[window[1:]] += 1
    torch.testing.assert_close(predict(model, images), total / count)
    whole = randomise(build()).eval()
    whole.load_state_dict(model.state_dict())
    assert (predict(whole, images) - total / count).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize('mode', ['whole', 'slide'])
def test_flip_test_is_the_mean_with_the_mirror_image(build, predict, randomise, mode):
    test_cfg = dict(mode=mode, crop_size=(32, 64), stride=(32, 32))
    model = randomise(build(test_cfg)).eval()
    images = torch.randn(2, 3, 64, 96)
    one_way, mirrored = predict(model, images), predict(model, images.flip(3))
    model.test_cfg['flip'] = True
    both = predict(model, images)
    torch.testing.assert_close(both, (one_way + mirrored.flip(3)) / 2)
    assert (both - one_way).abs().max() > 1e-3


@torch.no_grad()
def test_padding_is_cut_off_and_the_depth_resized(build, randomise):
    model = randomise(build()).eval()
    model.data_preprocessor.test_cfg = dict(size_divisor=16)
    image = torch.randn(3, 50, 90)
    info = dict(img_shape=(50, 90), ori_shape=(100, 180))
    data = model.data_preprocessor(
        dict(inputs=[image], data_samples=[SegDataSample(metainfo=info)])
    )
    (result,) = model(**data, mode='predict')
    depth = model(F.pad(image, (0, 6, 0, 14))[None])[..., :50, :90]
    expected = F.interpolate(depth, (100, 180), mode='bilinear')
    torch.testing.assert_close(result.pred_depth_map.data, expected[0])
