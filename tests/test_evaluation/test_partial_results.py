import copy
import re
from dataclasses import astuple

import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import MMLogger
from mmengine.runner import Runner

from snnet_mm.evaluation import partial_results
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.evaluation.partial_results import (
    MetricBuffers,
    PartialResults,
    StitchScores,
    identify,
)


class Sum(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return dict(sum=sum(results), number=len(results))


class Largest(Sum):
    def compute_metrics(self, results):
        return dict(largest=max(results))


def test_every_stitch_has_its_own_results(toy_cfg):
    """Batch n holds the predictions n and 10 n; those of stitch i are shifted by i."""
    evaluator, runner = Evaluator([Sum(), Largest()]), Runner.from_cfg(toy_cfg)
    buffers = MetricBuffers(evaluator, (5, 2))
    for n in range(7):
        for i in buffers.ids:
            with buffers.of(i):
                for metric in evaluator.metrics:
                    metric.process(None, [n + i, 10 * n + i])
        buffers.names += [f'{n}.png', f'{10 * n}.png']
    scores = buffers.scores(runner, num_images=13)  # of which a sampler repeated one
    for i in (5, 2):
        values = [f * n + i for n in range(7) for f in (1, 10)][:13]
        wanted = dict(sum=sum(values), number=13, largest=max(values))
        assert scores[i] == (wanted, 13, None)
    assert evaluator.metrics[0].results == []


@pytest.fixture
def logged(monkeypatch):
    lines = []
    logger = MMLogger.get_current_instance()
    monkeypatch.setattr(logger, 'info', lines.append)
    return logger, lines


IDENTITY = dict(model='a', checkpoint='b')
IMAGES = ImageScores('acc', (3,), *np.random.rand(2, 1, 4, 1), names='d')
GROUPS = (
    {(3, 4, None): StitchScores(dict(acc=1.5, nan=float('nan')), 4, IMAGES)},
    {(0, 4, (32, 48)): StitchScores(dict(acc=2.0), 4, None)},
)


def partial(folder, logged, resume=True, **changed):
    return PartialResults(folder / 'part', IDENTITY | changed, resume, logged[0])


def test_finished_groups_are_read_again(tmp_path, logged):
    first = partial(tmp_path, logged, resume=False)
    for group in GROUPS:
        first.add(group)
    again = partial(tmp_path, logged)
    assert logged[1] == [f'Resuming with 2 stitches of {tmp_path}/part finished']
    wanted = GROUPS[0] | GROUPS[1]
    assert again.scores.keys() == wanted.keys()
    for key, scores in wanted.items():
        assert repr(again.scores[key][:2]) == repr(scores[:2])
    images = again.scores[3, 4, None].images
    assert repr(astuple(images)) == repr(astuple(IMAGES))
    # Groups to come have files of their own.
    again.add({(1, 4, None): GROUPS[1][0, 4, (32, 48)]})
    assert len(partial(tmp_path, logged).scores) == 3
    again.remove()
    assert not [*tmp_path.iterdir()]


def damaged(file):
    file.write_bytes(file.read_bytes()[:-50])


def of_a_killed_writer(file):
    file.rename(file.with_name('.group_0.77.pth'))


@pytest.mark.parametrize(
    ('changed', 'damage', 'words'),
    [
        (dict(model='c'), None, 'Starting anew: .*group_0.pth is of another model$'),
        (dict(fp16='c'), None, 'Starting anew: .*group_0.pth is of another fp16$'),
        ({}, damaged, 'Starting anew: .*group_0.pth is truncated, damaged'),
        ({}, of_a_killed_writer, 'Resuming with 0 stitches'),
    ],
)
def test_other_scores_are_not_resumed(tmp_path, logged, changed, damage, words):
    partial(tmp_path, logged, resume=False).add(GROUPS[0])
    if damage:
        damage(tmp_path / 'part/group_0.pth')
    assert partial(tmp_path, logged, **changed).scores == {}
    (line,) = logged[1]
    assert re.search(words, line)
    assert '\n' not in line
    assert not (tmp_path / 'part').exists()


def test_scores_are_shared_with_other_ranks(tmp_path, logged, monkeypatch):
    """Files are the main process's; others get all but the images' scores."""
    partial(tmp_path, logged, resume=False).add(GROUPS[0])
    sent = []
    monkeypatch.setattr(partial_results, 'broadcast_object_list', sent.extend)
    partial(tmp_path, logged)
    monkeypatch.setattr(partial_results, 'is_main_process', lambda: False)
    receive = lambda objects: objects.__setitem__(0, sent[0])  # noqa: E731
    monkeypatch.setattr(partial_results, 'broadcast_object_list', receive)
    other = partial(tmp_path, logged)
    ((key, (metrics, number, images)),) = other.scores.items()
    assert (key, metrics['acc'], number, images) == ((3, 4, None), 1.5, 4, None)
    other.add(GROUPS[1])
    other.remove()
    assert [p.name for p in (tmp_path / 'part').iterdir()] == ['group_0.pth']


CHANGES = {
    'model': dict(model=dict(test_cfg=dict(mode='slide'))),
    'data_preprocessor': dict(data_preprocessor=dict(mean=[900.0])),
    'test_dataloader': dict(test_dataloader=dict(batch_size=1)),
    'test_evaluator': dict(test_evaluator=dict(iou_metrics=['mDice'])),
}


def test_an_identity_covers_all_that_changes_scores(toy_cfg):
    runner = Runner.from_cfg(toy_cfg)
    dataset = runner.test_dataloader.dataset

    def differs(statistics=None):
        found = identify(runner, dataset, statistics or {})
        return {key for key in known | found if known.get(key) != found.get(key)}

    known = identify(runner, dataset, {})
    assert differs() == set()
    for key, change in CHANGES.items():
        runner.cfg = copy.deepcopy(toy_cfg)
        runner.cfg.merge_from_dict(change)
        assert differs() == {key}
    for setting in ('fp16', 'metric', 'recalibrate_bn'):
        runner.cfg = copy.deepcopy(toy_cfg)
        runner.cfg.test_cfg[setting] = 7
        assert 'test_cfg' in differs()
    runner.cfg = copy.deepcopy(toy_cfg)
    runner.cfg.test_cfg.update(resume=True, stitches=[0], stitches_per_pass=2)
    assert differs() == set()
    assert differs({3: dict(mean=torch.ones(2))}) == {'checkpoint'}
    next(runner.model.parameters()).data.add_(1)
    assert differs() == {'checkpoint'}


def test_another_data_folder_has_other_images(toy_cfg):
    runner, identities = Runner.from_cfg(toy_cfg), []
    for name in ('a.jpg', 'b.jpg', 'b.jpg'):
        data = BaseDataset(lazy_init=True)
        data.load_data_list = lambda name=name: [dict(img_path=name)]
        data.full_init()
        identities.append(identify(runner, data, {}))
    a, b, again = identities
    assert b == again
    assert {k for k in a if a[k] != b[k]} == {'images'}
