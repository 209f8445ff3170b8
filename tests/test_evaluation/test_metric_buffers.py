import pickle

import pytest
from mmengine.evaluator import BaseMetric, Evaluator

from snnet_mm.evaluation import metric_results
from snnet_mm.evaluation.metric_results import MetricResults


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


def feed(results, begin, end):
    """Batch n holds the predictions n and 10 n; those of stitch i are shifted by i."""
    for n in range(begin, end):
        for i in results.ids:
            with results.of(i):
                for metric in results.evaluator.metrics:
                    metric.process(None, [n + i, 10 * n + i])
        results.end_batch()


def expected(stitch_id, num_batches):
    values = [f * n + stitch_id for n in range(num_batches) for f in (1, 10)]
    return dict(sum=sum(values), number=len(values), largest=max(values))


@pytest.mark.parametrize('on_disk', [False, True])
def test_every_stitch_has_its_own_results(evaluator, tmp_path, on_disk):
    results = MetricResults(
        evaluator, (5, 2), tmp_path if on_disk else None, interval=3
    )
    feed(results, 0, 7)
    for i in (2, 5):
        assert results.score(i, num_images=14) == expected(i, 7)
    assert evaluator.metrics[0].results == []


def test_memory_is_bounded_on_disk(evaluator, tmp_path):
    results = MetricResults(evaluator, (5, 2), tmp_path, interval=3)
    feed(results, 0, 6)
    assert results._collected == {5: [[], []], 2: [[], []]}
    feed(results, 6, 7)
    assert results._collected[2] == [[8, 62], [8, 62]]


def test_taken_up_where_all_stitches_and_ranks_are(evaluator, tmp_path, monkeypatch):
    feed(MetricResults(evaluator, (5, 2), tmp_path, interval=3), 0, 10)
    results = MetricResults(evaluator, (5, 2), tmp_path, interval=3)
    assert results.num_batches == 9
    # A crash while a record was written.
    path = tmp_path / 'rank0' / 'stitch_2.pkl'
    path.write_bytes(path.read_bytes()[:-5])
    results = MetricResults(evaluator, (5, 2), tmp_path, interval=3)
    assert results.num_batches == 6
    feed(results, 6, 10)
    assert results.score(2, 20) == expected(2, 10)
    assert results.score(5, 20) == expected(5, 10)
    # Another rank has one record only.
    monkeypatch.setattr(metric_results, 'all_gather_object', lambda n: [n, 1])
    results = MetricResults(evaluator, (5, 2), tmp_path, interval=3)
    assert results.num_batches == 3
    feed(results, 3, 4)
    assert results.score(5, 8) == expected(5, 4)


def test_a_stitch_that_was_never_begun_begins_all_anew(evaluator, tmp_path):
    feed(MetricResults(evaluator, (5, 2), tmp_path, interval=1), 0, 4)
    results = MetricResults(evaluator, (5, 7), tmp_path, interval=1)
    assert results.num_batches == 0
    feed(results, 0, 2)
    assert results.score(5, 4) == expected(5, 2)


def test_a_damaged_record_ends_what_is_taken_up(evaluator, tmp_path):
    """One bit in a number would be a wrong result."""
    feed(MetricResults(evaluator, (2,), tmp_path, interval=1), 0, 3)
    path = tmp_path / 'rank0' / 'stitch_2.pkl'
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    results = MetricResults(evaluator, (2,), tmp_path, interval=1)
    assert results.num_batches == 1
    feed(results, 1, 3)
    assert results.score(2, 6) == expected(2, 3)


def test_garbage_is_no_record(evaluator, tmp_path):
    folder = tmp_path / 'rank0'
    folder.mkdir()
    (folder / 'stitch_2.pkl').write_bytes(pickle.dumps((1, [[1], [1]]))[::-1])
    assert MetricResults(evaluator, (2,), tmp_path).num_batches == 0
