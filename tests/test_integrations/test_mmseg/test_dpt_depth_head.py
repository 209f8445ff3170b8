"""DPT's depth head on small stitched backbones."""

import pytest
import torch
import torch.nn.functional as F

from snnet_mm.apis import set_stitch

SIZE = (64, 96)


def conv(module, x, padding=0):
    return F.conv2d(x, module.weight, module.bias, padding=padding)


def residual(unit, x):
    """A residual unit that starts with its activation."""
    y = conv(unit.conv1.conv, x.relu(), padding=1)
    return x + conv(unit.conv2.conv, y.relu(), padding=1)


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True)


def head_by_hand(head, pairs, readout):
    blocks = head.reassemble_blocks
    features = []
    for i, (x, cls) in enumerate(pairs):
        tokens = x.flatten(2).transpose(1, 2)
        if readout == 'add':
            tokens = tokens + cls[:, None]
        elif readout == 'project':
            linear = blocks.readout_projects[i][0]
            pair = torch.cat([tokens, cls[:, None].expand_as(tokens)], dim=2)
            tokens = F.gelu(F.linear(pair, linear.weight, linear.bias))
        x = conv(blocks.projects[i].conv, tokens.transpose(1, 2).reshape(x.shape))
        features.append(conv(head.convs[i].conv, blocks.resize_layers[i](x), padding=1))
    for block, feature in zip(head.fusion_blocks, reversed(features), strict=True):
        if block.res_conv_unit1 is None:
            out = feature
        else:
            out = out + residual(block.res_conv_unit1, feature)
        out = conv(block.project.conv, upsample(residual(block.res_conv_unit2, out)))
    out = conv(head.project.conv, out, padding=1).relu()
    first, _, second, _, last = head.conv_depth
    out = upsample(conv(first, out, padding=1))
    out = conv(last, conv(second, out, padding=1).relu())
    return head.min_depth + (head.max_depth - head.min_depth) / (1 + (-out).exp())


@torch.no_grad()
@pytest.mark.parametrize('readout', ['ignore', 'add', 'project'])
def test_head_by_hand(build, randomise, readout):
    model = randomise(build(readout_type=readout, min_depth=0.5, max_depth=3)).eval()
    images = torch.randn(2, 3, *SIZE)
    for stitch_id in (0, 1, 7):
        set_stitch(model, stitch_id)
        pairs = model.backbone(images)
        depth = model.decode_head(pairs)
        assert depth.shape == (2, 1, *SIZE)
        expected = head_by_hand(model.decode_head, pairs, readout)
        torch.testing.assert_close(depth, expected)
        assert depth.std() > 0.01
    if readout == 'ignore':
        model.backbone.with_cls = False
        assert model(images).equal(depth)


def test_loss_is_of_the_depth_at_full_size(build, sample):
    model, images = build(), torch.randn(2, 3, 64, 90)
    truth = torch.rand(2, 1, 64, 90) * 5
    losses = model(images, [sample(t) for t in truth], mode='loss')
    depth = F.interpolate(model(images), (64, 90), mode='bilinear')
    expected = model.decode_head.loss_decode(depth, truth)
    torch.testing.assert_close(losses, {'decode.loss_depth': expected})
    losses['decode.loss_depth'].backward()
    assert all(p.grad.any() for p in model.decode_head.parameters())


@pytest.mark.parametrize(
    'kwargs, message',
    [
        (dict(min_depth=10), r'\(10, 10\); allowed: 0 < min_depth < max_depth'),
        (dict(readout_type='concat'), "'concat'; allowed: 'ignore', 'add', 'pro"),
        (dict(post_process_channels=(4, 8)), r'\(4, 8\); allowed: four widths'),
        (dict(test_cfg=dict(mode='slide_flip')), "allowed: 'whole', 'slide'"),
    ],
)
def test_bad_settings(build, kwargs, message):
    with pytest.raises(ValueError, match=message):
        build(**kwargs)


def test_bad_inputs(build, sample):
    images = torch.randn(2, 3, *SIZE)
    with pytest.raises(ValueError, match="'add'; allowed: 'ignore'.*backbone.with_cls"):
        build(readout_type='add', backbone=dict(with_cls=False))(images)
    samples = [sample(torch.ones(1, 64, w)) for w in (96, 80)]
    with pytest.raises(ValueError, match=r'\(1, 64, 80\), \(1, 64, 96\)\]; allowed'):
        build()(images, samples, mode='loss')
