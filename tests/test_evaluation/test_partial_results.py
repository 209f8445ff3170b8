import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric, Evaluator

from snnet_mm.evaluation import partial_results
from snnet_mm.evaluation.partial_results import MetricBuffers


class Sum(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return dict(sum=sum(results), number=len(results))


class Largest(Sum):
    def compute_metrics(self, results):
        return dict(largest=max(results))


@pytest.fixture
def evaluator():
    return Evaluator([Sum(), Largest()])


def feed(buffers, begin, end):
    """Batch n holds the predictions n and 10 n; those of stitch i are shifted by i."""
    for n in range(begin, end):
        for i in buffers.ids:
            with buffers.of(i):
                for metric in buffers.evaluator.metrics:
                    metric.process(None, [n + i, 10 * n + i])
        buffers.end_batch()


def expected(stitch_id, num_batches):
    values = [f * n + stitch_id for n in range(num_batches) for f in (1, 10)]
    return dict(sum=sum(values), number=len(values), largest=max(values))


@pytest.mark.parametrize('on_disk', [False, True])
def test_every_stitch_has_its_own_results(evaluator, tmp_path, on_disk):
    folder = tmp_path if on_disk else None
    buffers = MetricBuffers(evaluator, (5, 2), folder, interval=3)
    feed(buffers, 0, 6)
    if on_disk:  # memory is bounded
        assert buffers._collected == {5: [[], []], 2: [[], []]}
    feed(buffers, 6, 7)
    for i in (2, 5):
        assert buffers.evaluate(i, num_images=14) == expected(i, 7)
    assert evaluator.metrics[0].results == []


def nothing(path, monkeypatch):
    pass


def crash_while_writing(path, monkeypatch):
    path.write_bytes(path.read_bytes()[:-5])


def flip_a_bit(path, monkeypatch):
    """One bit in a number would be a wrong result."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def another_rank_has_one_record(path, monkeypatch):
    monkeypatch.setattr(partial_results, 'all_gather_object', lambda n: [n, 1])


@pytest.mark.parametrize(
    ('ids', 'damage', 'taken_up'),
    [
        ((5, 2), nothing, 9),
        ((5, 2), crash_while_writing, 6),
        ((5, 2), flip_a_bit, 3),
        ((5, 2), another_rank_has_one_record, 3),
        ((5, 7), nothing, 0),  # stitch 7 was never begun
    ],
)
def test_taken_up_is_what_all_stitches_and_ranks_have(
    evaluator, tmp_path, monkeypatch, ids, damage, taken_up
):
    feed(MetricBuffers(evaluator, (5, 2), tmp_path, interval=3), 0, 10)
    damage(tmp_path / 'rank0' / 'stitch_2.results', monkeypatch)
    buffers = MetricBuffers(evaluator, ids, tmp_path, interval=3)
    assert buffers.num_batches == taken_up
    feed(buffers, taken_up, 10)
    assert [buffers.evaluate(i, 20) for i in ids] == [expected(i, 10) for i in ids]


class Keep(BaseMetric):
    """Collects what mm's metrics do, and hands it out again."""

    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return dict(results=results)


# As collected for segmentation, detection and classification, and by ours for depth.
COLLECTED = [
    tuple(torch.arange(4.0) + i for i in range(4)),
    (
        dict(width=6, height=4, img_id=3, anns=[dict(bbox=[1, 2.5], ignore_flag=0)]),
        dict(
            img_id=np.int64(3),
            bboxes=np.ones((2, 4), np.float32),
            labels=np.array([1, 0]),
            masks=[dict(size=[4, 6], counts=b'\x00\xff0P')],
            boxes_of_none=np.zeros((0, 4), np.float32),
        ),
    ),
    dict(pred_score=torch.rand(5), gt_label=torch.tensor([2]), num=None, name='a'),
    (0.25, float('inf'), True),
]


def test_what_mm_metrics_collect_comes_back_from_disk(tmp_path):
    buffers = MetricBuffers(Evaluator(Keep()), (0,), tmp_path, interval=1)
    with buffers.of(0):
        buffers.evaluator.metrics[0].process(None, COLLECTED)
    buffers.end_batch()
    assert buffers._collected[0] == [[]]
    found = buffers.evaluate(0, 4)['results']
    assert repr(found) == repr(COLLECTED)
    torch.testing.assert_close(found[0], COLLECTED[0], rtol=0, atol=0)


class Custom:
    """No plain data."""

    def __reduce__(self):
        return exit, ()


@pytest.mark.parametrize('thing', [Custom(), lambda: 0], ids=['pickled', 'not at all'])
def test_what_is_no_plain_data_stays_in_memory(tmp_path, monkeypatch, thing):
    warned = []
    logger = partial_results.MMLogger.get_current_instance()
    monkeypatch.setattr(logger, 'warning', warned.append)
    evaluator = Evaluator(Keep())
    buffers = MetricBuffers(evaluator, (0, 1), tmp_path, interval=1)
    for n in range(3):
        for i in (0, 1):
            with buffers.of(i):
                evaluator.metrics[0].process(None, [thing if n == i == 1 else n])
        buffers.end_batch()
    assert buffers.evaluate(0, 3)['results'] == [0, 1, 2]
    assert buffers.evaluate(1, 3)['results'] == [0, thing, 2]
    (words,) = warned
    assert words.startswith('Keep: results that are no plain data are kept in memory')
    # The first batch was written; it is all that a resumed test takes up.
    assert MetricBuffers(evaluator, (0, 1), tmp_path, interval=1).num_batches == 1
