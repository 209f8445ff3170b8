import shlex
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from small import small
from torch import nn

from snnet_mm.elastic import report
from snnet_mm.elastic.report import draw_predictions, elastic_table, next_commands
from snnet_mm.models import ElasticBackbone
from snnet_mm.stitching import Cost, Setup, StitchTable, TwoWaySpace


def results_of(metric, scores, ms=(8.0, 4.0), flops=(200, 100)):
    """Results of the network and of one chain."""
    costs = {i: Cost(f, 10) for i, f in enumerate(flops)}
    table = StitchTable.counted(costs, (48, 64), TwoWaySpace((3, 7)))
    table = table.measured(Setup('cpu', 1, 'fp32'), dict(enumerate(ms)))
    return table.with_metrics({i: {metric: s} for i, s in enumerate(scores)})


@pytest.mark.parametrize(
    'metric, scores, heading, cells',
    [
        ('mIoU', (40, 30), "of network's", ['100.0%', '75.0%']),
        ('coco/bbox_mAP', (0.312, 0.28), "of network's", ['100.0%', '89.7%']),
        ('RMSE', (4, 5), 'more error', ['', '+25.0%']),
        ('RMSE', (0, 5), 'more error', ['', '']),
    ],
)
def test_elastic_table_compares_scores_with_network(metric, scores, heading, cells):
    table = elastic_table(results_of(metric, scores))
    assert table.columns[-1].header == heading
    assert list(table.columns[-1].cells) == cells
    assert list(table.columns[-2].cells) == [f'{s:.4g}' for s in scores]
    assert table.columns[-2].header == metric.split('/')[-1]
    assert list(table.columns[-3].cells) == ['100%', '50%']
    assert table.caption.endswith('alone in PyTorch, cpu, batch 1, fp32')
    slow = elastic_table(results_of('mIoU', (40, 30), ms=(4.0, 8.0)))
    assert slow.row_count == 1
    assert slow.caption.endswith('fast: 1')


@pytest.mark.parametrize('metric', ['mIoU', 'coco/bbox_mAP', 'accuracy/top1'])
def test_elastic_table_remarks_networks_that_predict_nothing(metric):
    name = metric.rpartition('/')[2]
    caption = elastic_table(results_of(metric, (0, 0))).caption
    assert caption.endswith(f'{name} of the network is 0: it cannot rank the budgets')
    assert 'is 0' not in elastic_table(results_of(metric, (0.1, 0))).caption


VIT = small('vit', depth=3, patch_size=16)
RESNET = dict(type='TimmStageAnchor', model='resnet10t')


class BaseSegmentor(nn.Module):
    """A model whose task is known by the name of its class."""

    def __init__(self, anchor):
        super().__init__()
        self.backbone = ElasticBackbone([anchor], chains=[])
        self.decode_head = nn.Identity()


class BaseClassifier(BaseSegmentor):
    """The same of another task."""


@pytest.mark.parametrize(
    ('model', 'anchor', 'steps', 'more', 'page'),
    [
        (BaseSegmentor, VIT, [], '--precision fp32 int8 --verify-on val', True),
        (BaseSegmentor, RESNET, [], '--verify-on val', True),
        (BaseClassifier, VIT, [], '--precision fp32 int8 --verify-on val', False),
        # The runtime would not see what this step makes of images.
        (BaseClassifier, VIT, [dict(type='My')], '--precision fp32 int8', False),
    ],
)
def test_next_commands_are_what_model_supports(
    model, anchor, steps, more, page, monkeypatch
):
    monkeypatch.chdir(Path(__file__).parents[2])
    results = results_of('mIoU', (40, 30), flops=(2 * 10**9, 10**9))
    loader = dict(dataset=dict(pipeline=steps))
    runner = SimpleNamespace(
        model=model(anchor),
        cfg=Config(dict.fromkeys(('val_dataloader', 'test_dataloader'), loader)),
    )
    folder = Path('my folder')
    test, export, *web = next_commands(folder, results, runner)
    files = ['my folder/elastic.py', 'my folder/elastic.pth']
    known = ['--results', 'my folder/stitches.json']
    wanted = ['python', 'tools/test.py', *files, '--budget', '1G', *known]
    assert shlex.split(test) == wanted
    wanted = ['python', 'tools/export_stitch.py', *files, '--stitch-id', 'pareto']
    wanted += [*known, *more.split(), '--out', 'my folder/bundle']
    assert shlex.split(export) == wanted
    assert [shlex.split(line)[1:3] for line in web] == [
        ['tools/web_demo.py', 'my folder/bundle']
    ] * page


@pytest.mark.parametrize('swaps', [True, False])
def test_draw_predictions_colours_of_loaded_images(swaps, monkeypatch):
    """They are BGR where the data preprocessor swaps channels, otherwise RGB."""
    image, rows = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8), []
    loaded = torch.from_numpy(image[..., :: -1 if swaps else 1].copy()).permute(2, 0, 1)
    data = [dict(inputs=loaded, data_samples=BaseDataElement())]
    model = BaseSegmentor(VIT)
    model.test_step = lambda batch: batch['data_samples']

    def draw(name, image, data_sample, out_file):
        cv2.imwrite(out_file, image[..., ::-1])

    runner = SimpleNamespace(
        model=model,
        cfg=Config(dict(model=dict(data_preprocessor=dict(bgr_to_rgb=swaps)))),
        visualizer=SimpleNamespace(add_datasample=draw),
        test_dataloader=SimpleNamespace(dataset=data),
    )
    monkeypatch.setattr(
        report, 'plot_images', lambda found, *_, **__: rows.extend(found)
    )
    draw_predictions(runner, {0: 'network'}, Path('a.png'))
    for picture in rows[0]:
        np.testing.assert_array_equal(picture, image)
