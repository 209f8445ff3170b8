from collections import Counter
from itertools import islice

import torch
from mmengine.registry import DATA_SAMPLERS

from snnet_mm.datasets import repeat_aug


def build(monkeypatch, rank=0, world_size=1, **kwargs):
    info = rank, world_size
    monkeypatch.setattr(repeat_aug, 'get_dist_info', lambda: info)
    cfg = dict(type='InfiniteRepeatAugSampler', dataset=range(6), seed=4)
    return DATA_SAMPLERS.build(cfg | kwargs)


def test_repeat_aug_draws_images_three_times(monkeypatch):
    """Images of an order are drawn three times in a row."""
    generator = torch.Generator()
    generator.manual_seed(4)
    orders = [torch.randperm(6, generator=generator).tolist() for _ in range(50)]
    expected = [i for order in orders for i in order[:2] for _ in range(3)]
    sampler = build(monkeypatch)
    assert len(sampler) == 6
    assert [*islice(sampler, 300)] == expected
    assert {*Counter(expected)} == {*range(6)}


def test_repeat_aug_ranks_draw_copies_of_image(monkeypatch):
    whole = [*islice(build(monkeypatch), 30)]
    ranks = [[*islice(build(monkeypatch, r, 3), 10)] for r in range(3)]
    assert [i for images in zip(*ranks, strict=True) for i in images] == whole
    assert ranks[0] == ranks[1] == ranks[2]


def test_repeat_aug_resumed_stream_goes_on(monkeypatch):
    expected = [*islice(build(monkeypatch, 1, 2), 20)]
    sampler = build(monkeypatch, 1, 2)
    sampler.skip(7)
    assert [*islice(sampler, 13)] == expected[7:]
