"""Detectors in training, and all their stitches in one pass."""

import json

import numpy as np
import pytest

from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops
pytest.importorskip('mmdet')

IDS = [0, 4, 12, 1]
LOAD = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
NAMES = [
    f'coco/{kind}_{item}' for kind in ('bbox', 'segm') for item in ('mAP', 'mAP_50')
]


def one_at_a_time(runner):
    """mmengine's own loop with mmdet's own metric, anew for every stitch."""
    metrics, config = {}, dict(type='CocoMetric', metric=['bbox', 'segm'])
    config['metric_items'] = ['mAP', 'mAP_50']
    for stitch_id in IDS:
        set_stitch(runner.model, stitch_id)
        evaluator = runner.build_evaluator(config)
        evaluator.metrics[0].iou_thrs = np.array([0.02, 0.5])
        evaluator.dataset_meta = runner.test_dataloader.dataset.metainfo
        runner.test_loop.evaluator = evaluator
        metrics |= {f'stitch_{stitch_id}/{k}': v for k, v in runner.test().items()}
    return metrics


@pytest.mark.slow
def test_one_pass_equals_mmdets_own_one_at_a_time(make_runner, tmp_path, capsys):
    together = make_runner(out_dir=str(tmp_path)).test()
    written = json.loads((tmp_path / 'stitches.json').read_text())
    assert written['metric'] == 'coco/bbox_mAP'
    assert 'Average Precision' not in capsys.readouterr().out
    assert together == one_at_a_time(make_runner('TestLoop'))
    assert set(together) == {f'stitch_{i}/{name}' for i in IDS for name in NAMES}
    for name, least in (('coco/bbox_mAP', 4), ('coco/segm_mAP', 3)):
        assert len({together[f'stitch_{i}/{name}'] for i in IDS}) >= least


@pytest.mark.slow
def test_fewer_images_are_counted_as_a_smaller_data_set(make_runner, det_cfg):
    limited = make_runner(limit=2).test()
    det_cfg.test_dataloader.dataset.indices = [0, 2]
    assert limited == one_at_a_time(make_runner('TestLoop'))


@pytest.mark.parametrize(
    'change, message',
    [
        (dict(num_objects=(0, 0)), '4 images without an annotated object'),
        (dict(pipeline=[LOAD, dict(type='PackDetInputs')]), 'no annotations .*ann_f'),
    ],
)
def test_nothing_to_evaluate_with(make_runner, det_cfg, change, message):
    det_cfg.test_dataloader.dataset.update(change)
    with pytest.raises(ValueError, match=message):
        make_runner(stitches=[0]).test()
