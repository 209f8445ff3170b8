import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS

from snnet_mm.models import MapLayerNorm, SimpleFeaturePyramid


def norm_by_hand(norm, x):
    mean, variance = x.mean(1, True), x.var(1, False, keepdim=True)
    scale, shift = (p.view(-1, 1, 1) for p in norm.parameters())
    return (x - mean) / (variance + norm.eps).sqrt() * scale + shift


def test_map_layer_norm_is_over_channels(randomise):
    norm, x = randomise(MapLayerNorm(4)), torch.randn(2, 4, 3, 5)
    assert norm.eps == 1e-6
    torch.testing.assert_close(norm(x), norm_by_hand(norm, x))
    neck = randomise(MODELS.build(dict(type='NormPerMap', in_channels=(4, 6))))
    found, nothing = neck([x, None])
    assert neck.norms[0].eps == 1e-5
    torch.testing.assert_close(found, norm_by_hand(neck.norms[0], x))
    assert nothing is None


def test_simple_feature_pyramid_levels_equal_vitdet_by_hand(randomise):
    strides = [2, 4, 8, 16, 32]
    pyramid = SimpleFeaturePyramid(8, out_channels=6, in_stride=8, strides=strides)
    randomise(pyramid)
    x = torch.randn(2, 8, 4, 6)

    def end(layers, y):
        conv1, norm1, conv3, norm3 = layers[-4:]
        y = norm1(F.conv2d(y, conv1.weight))
        return norm3(F.conv2d(y, conv3.weight, padding=1))

    def up(layer, y):
        # Every place becomes a square of 2 x 2.
        squares = torch.einsum('bchw,cdij->bdhiwj', y, layer.weight)
        return squares.flatten(4).flatten(2, 3) + layer.bias.view(-1, 1, 1)

    quarter, half, same, double = pyramid.levels
    first, norm, _, second = quarter[:4]
    down = x.unflatten(3, (3, 2)).unflatten(2, (2, 2)).amax((3, 5))
    expected = [
        end(quarter, up(second, F.gelu(norm(up(first, x))))),
        end(half, up(half[0], x)),
        end(same, x),
        end(double, down),
    ]
    expected.append(expected[-1][..., ::2, ::2])
    # Only the last map counts.
    for level, wanted in zip(pyramid([x + 1, x]), expected, strict=True):
        torch.testing.assert_close(level, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('strides', [(), (4, 16), (3, 6), (64, 128)])
def test_simple_feature_pyramid_impossible_strides_are_refused(strides):
    with pytest.raises(ValueError, match=r'neck\.strides'):
        SimpleFeaturePyramid(8, strides=strides)
