from dataclasses import replace

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement
from tables import table_of

from snnet_mm.evaluation.image_scores import (
    ImageScores,
    gathered,
    image_names,
    image_scores,
)


def test_image_scores_iou_of_sums_by_class():
    intersections = np.array([[[1, 0], [3, 0]]])
    unions = np.array([[[2, 0], [6, 0]]])
    images = ImageScores('mIoU', (5,), intersections, unions, 100)
    # The second class is in no image; weights count images.
    scores = images.scores(np.array([[1, 1], [2, 0]]))
    np.testing.assert_allclose(scores, [[100 * 4 / 8], [100 * 2 / 4]])


class Accuracy(BaseMetric):
    """Known by its name, as mmpretrain's."""

    process = compute_metrics = None


def test_image_scores_leaves_out_other_statistics():
    def result(label, *scores):
        return dict(pred_score=torch.tensor(scores), gt_label=torch.tensor([label]))

    results = [[result(0, 0.4, 0.3, 0.3), result(1, 0.2, 0.1, 0.7)]]
    given = [Accuracy()], results
    found = image_scores(7, *given, {'accuracy/top1': 50.0}, names=['a', 'b'])
    assert (found.metric, found.ids, found.scale) == ('accuracy/top1', (7,), 100)
    assert found.numerators.tolist() == [[[1], [0]]]
    # With a threshold of 0.5 no image counts as right.
    assert not image_scores(7, *given, {'accuracy/top1': 0.0}, names=['a', 'b'])


def test_image_scores_interval_of_difference_is_paired():
    half = np.arange(400)[:, None] % 2
    hits, ones = np.stack([half, half + 1]), np.ones((1, 400, 1))
    first, more = (ImageScores('acc', (0,), h[None], ones) for h in hits)
    # One more on every image: no image varies, though each model does.
    assert more.difference_from(first) == pytest.approx((1, 1))
    none = ImageScores('acc', (0,), 0 * ones, ones)
    low, high = first.difference_from(none)
    assert (low + high) / 2 == pytest.approx(0.5, abs=0.01)
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.1)


def test_image_scores_read_what_was_saved(tmp_path):
    path, images = tmp_path / 'per_image.npz', np.random.rand(2, 1, 3, 1)
    parts = [ImageScores('acc', (i,), *images, names='a') for i in (0, 1)]
    joined = replace(ImageScores.stack(parts), digest='a test')
    joined.save(path)
    table = replace(table_of({0: 1}), digest='a test')
    read = ImageScores.read(path, table)
    assert (read.metric, read.ids, read.names) == ('acc', (0, 1), 'a')
    np.testing.assert_array_equal(read.numerators, joined.numerators)
    with pytest.raises(ValueError, match='--results'):
        ImageScores.read(path, replace(table, digest='another'))
    path.write_text('no arrays')
    with pytest.raises(ValueError, match='--results'):
        ImageScores.read(path)


def test_gathered_names_of_ranks_are_of_results(monkeypatch):
    ranks = ['a', 'c', 'e'], ['b', 'd', 'a']  # the last one pads
    monkeypatch.setattr(
        'snnet_mm.evaluation.image_scores.all_gather_object', lambda _: ranks
    )
    assert gathered([], 5) == ['a', 'b', 'c', 'd', 'e']
    sample = BaseDataElement(metainfo=dict(img_path='/data/x/val/1/2.png'))
    assert image_names([sample, BaseDataElement()]) == ['val/1/2.png', '']
