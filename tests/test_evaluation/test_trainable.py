from torch import nn
from toy_classifier import ToyClassifier

from snnet_mm.evaluation import count_parameters


def test_parts_of_a_stitched_model(build_snnet):
    """Anchors of 3 blocks x 8 and 7 x 12 channels, trained by updates of rank 2."""
    net = build_snnet(anchor=dict(lora=dict(rank=2)))
    counts = count_parameters(nn.DataParallel(ToyClassifier(net)).module)
    assert list(counts) == ['backbone.anchors', 'backbone.stitching_layers', 'head']
    # A is rank x C, B is 3C x rank for qkv and C x rank for proj.
    per_width = 2 * (1 + 3 + 1 + 1)
    assert counts['backbone.anchors'].trained == per_width * (3 * 8 + 7 * 12)
    # Three layers to the slow anchor, two back: A and B of every one.
    layers = counts['backbone.stitching_layers']
    assert layers.trained == 5 * 2 * (8 + 12)
    assert layers.total == layers.trained + 5 * 8 * 12 + 3 * 12 + 2 * 8
    assert counts['head'] == (12 * 5 + 5, 12 * 5 + 5)
    total = sum(count.total for count in counts.values())
    assert total == sum(p.numel() for p in ToyClassifier(net).parameters())
    assert list(count_parameters(net)) == ['anchors', 'stitching_layers']


def test_parts_of_any_other_model(build_vit):
    counts = count_parameters(ToyClassifier(build_vit(12, frozen_stages=3)))
    assert list(counts) == ['backbone', 'head']
    assert counts['backbone'].trained == 0
    assert str(counts['head']) == '65 of 65'
