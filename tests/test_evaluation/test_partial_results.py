import copy
import re
from dataclasses import astuple

import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from mmengine.logging import MMLogger
from mmengine.runner import Runner

from snnet_mm.evaluation import partial_results
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.evaluation.metric_buffers import StitchScores
from snnet_mm.evaluation.partial_results import PartialResults, identify


@pytest.fixture
def logged(monkeypatch):
    lines = []
    logger = MMLogger.get_current_instance()
    monkeypatch.setattr(logger, 'info', lines.append)
    return logger, lines


IMAGES = ImageScores('acc', (3,), *np.random.rand(2, 1, 4, 1), names='d')
GROUPS = (
    {(3, 4, None): StitchScores(dict(acc=1.5, nan=float('nan')), 4, IMAGES)},
    {(0, 4, (32, 48)): StitchScores(dict(acc=2.0), 4, None)},
)


def partial(folder, logged, resume=True):
    return PartialResults(folder / 'part.pth', resume, logged[0])


def test_finished_groups_are_read_again(tmp_path, logged):
    first = partial(tmp_path, logged, resume=False)
    for group in GROUPS:
        first.add(group)
    again = partial(tmp_path, logged)
    assert logged[1] == [f'Resuming with 2 stitches of {tmp_path}/part.pth finished']
    wanted = GROUPS[0] | GROUPS[1]
    assert again.scores.keys() == wanted.keys()
    for key, scores in wanted.items():
        assert repr(again.scores[key][:2]) == repr(scores[:2])
    images = again.scores[3, 4, None].images
    assert repr(astuple(images)) == repr(astuple(IMAGES))
    again.add({(1, 4, None): GROUPS[1][0, 4, (32, 48)]})
    assert len(partial(tmp_path, logged).scores) == 3
    again.remove()
    assert not [*tmp_path.iterdir()]


def damaged(file):
    file.write_bytes(file.read_bytes()[:-50])


def of_a_killed_writer(file):
    file.rename(file.with_name('.part.77.pth'))


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        (damaged, 'part.pth is truncated, damaged'),
        (of_a_killed_writer, 'part.pth does not exist; tests of another model'),
    ],
)
def test_unreadable_scores_are_not_resumed(tmp_path, logged, damage, words):
    partial(tmp_path, logged, resume=False).add(GROUPS[0])
    damage(tmp_path / 'part.pth')
    assert partial(tmp_path, logged).scores == {}
    (line,) = logged[1]
    assert re.search(f'Starting anew: .*{words}', line)
    assert '\n' not in line
    assert not (tmp_path / 'part.pth').exists()


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
    assert (tmp_path / 'part.pth').exists()


CHANGES = [
    dict(model=dict(test_cfg=dict(mode='slide'))),
    dict(data_preprocessor=dict(mean=[900.0])),
    dict(test_dataloader=dict(batch_size=1)),
    dict(test_evaluator=dict(iou_metrics=['mDice'])),
    *(dict(test_cfg={key: 7}) for key in ('fp16', 'metric')),
]


def test_an_identity_covers_all_that_changes_scores(toy_cfg):
    runner = Runner.from_cfg(toy_cfg)
    dataset = runner.test_dataloader.dataset
    known = identify(runner, dataset)
    for change in CHANGES:
        runner.cfg = copy.deepcopy(toy_cfg)
        runner.cfg.merge_from_dict(change)
        assert identify(runner, dataset) != known
    runner.cfg = copy.deepcopy(toy_cfg)
    runner.cfg.test_cfg.update(resume=True, stitches=[0], stitches_per_pass=2)
    assert identify(runner, dataset) == known
    next(runner.model.parameters()).data.add_(1)
    assert identify(runner, dataset) != known


def test_another_data_folder_has_other_images(toy_cfg):
    runner, identities = Runner.from_cfg(toy_cfg), []
    for name in ('a.jpg', 'b.jpg', 'b.jpg'):
        data = BaseDataset(lazy_init=True)
        data.load_data_list = lambda name=name: [dict(img_path=name)]
        data.full_init()
        identities.append(identify(runner, data))
    a, b, again = identities
    assert a != b == again
