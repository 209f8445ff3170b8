"""All stitches of a detector in one pass, and what their metrics are."""

import json

import numpy as np
import pytest

from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops

IDS = [0, 4, 12, 1]
LOAD = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
BOTH = dict(type='CocoMetric', metric=['bbox', 'segm'])


@pytest.mark.slow
@pytest.mark.parametrize('indices', [None, [0, 2]])
def test_coco_metric_one_pass_equals_mmdet(
    make_runner, det_cfg, tmp_path, capsys, indices
):
    """mmengine's own loop with mmdet's own metric, anew for every stitch."""
    limit = {} if indices is None else dict(limit=len(indices))
    together = make_runner(out_dir=str(tmp_path), **limit).test()
    written = json.loads((tmp_path / 'stitches.json').read_text())
    assert written['metric'] == 'coco/bbox_mAP'
    assert 'Average Precision' not in capsys.readouterr().out
    det_cfg.test_dataloader.dataset.indices = indices
    runner, alone = make_runner('TestLoop'), {}
    for stitch_id in IDS:
        set_stitch(runner.model, stitch_id)
        evaluator = runner.build_evaluator(BOTH | dict(metric_items=['mAP', 'mAP_50']))
        evaluator.metrics[0].iou_thrs = np.array([0.02, 0.5])
        evaluator.dataset_meta = runner.test_dataloader.dataset.metainfo
        runner.test_loop.evaluator = evaluator
        alone |= {f'stitch_{stitch_id}/{k}': v for k, v in runner.test().items()}
    assert together == alone
    if indices is None:
        for name, least in (('coco/bbox_mAP', 4), ('coco/segm_mAP', 3)):
            assert len({together[f'stitch_{i}/{name}'] for i in IDS}) >= least


@pytest.mark.parametrize(
    ('data', 'evaluator', 'settings', 'message'),
    [
        (dict(num_objects=(0, 0)), {}, {}, '4 images .*ann_file'),
        (
            dict(pipeline=[LOAD, dict(type='PackDetInputs')]),
            *({}, {}, 'no annotations .*ann_f'),
        ),
        ({}, dict(type='CocoMetric'), dict(limit=2), '--limit'),
    ],
)
def test_coco_metric_that_cannot_be_computed_is_refused(
    make_runner, det_cfg, data, evaluator, settings, message
):
    det_cfg.test_dataloader.dataset.update(data)
    det_cfg.test_evaluator.update(evaluator)
    with pytest.raises(ValueError, match=message):
        make_runner(stitches=[0], **settings).test()


def test_coco_metric_no_detections_score_nothing(make_runner, det_cfg):
    det_cfg.model.test_cfg.rcnn.score_thr = 2
    det_cfg.test_evaluator = BOTH
    metrics = make_runner(stitches=[0, 1]).test()
    assert set(metrics.values()) == {0}
    assert {'stitch_0/coco/bbox_mAP', 'stitch_1/coco/segm_mAP_50'} <= set(metrics)


@pytest.mark.parametrize('annotated', [True, False])
def test_coco_metric_undefined_precisions_are_no_numbers(
    make_runner, det_cfg, tmp_path, annotated
):
    """pycocotools gives -1, as for small objects where there are none."""
    box = dict(id=1, image_id=0, bbox=[4, 4, 50, 50], area=2500, iscrowd=0)
    image = dict(id=0, file_name='0.png', height=64, width=64)
    content = dict(images=[image], categories=[dict(id=1, name='object')])
    content['annotations'] = [dict(box, category_id=1)] * annotated
    (tmp_path / 'truth.json').write_text(json.dumps(content))
    det_cfg.test_dataloader.dataset.num_scenes = 1
    ann_file = str(tmp_path / 'truth.json')
    det_cfg.test_evaluator = dict(type='CocoMetric', metric='bbox', ann_file=ann_file)
    runner = make_runner(stitches=[0], out_dir=str(tmp_path))
    runner.test_evaluator.dataset_meta = dict(classes=('object',))
    runner.test()
    (row,) = json.loads((tmp_path / 'stitches.json').read_text())['stitches']
    found = {name.rpartition('_')[2]: v for name, v in row['metrics'].items()}
    assert found['s'] is None
    assert (found['mAP'] is None) is not annotated
    assert (found['m'] is None) is not annotated
