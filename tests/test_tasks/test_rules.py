"""Rules of evaluation for detectors: pictures, and metrics of parts of the data."""

import json

import cv2
import numpy as np
import pytest

pytestmark = pytest.mark.ops
pytest.importorskip('mmdet')


@pytest.mark.slow
def test_pictures_show_boxes_of_each_stitch(make_runner, tmp_path):
    make_runner(show_dir=str(tmp_path / 'show'), limit=1, stitches=[0, 12]).test()
    names = [f'stitch_{i}/toy_scenes/val/000000.png' for i in (0, 12)]
    pictures = [cv2.imread(str(tmp_path / 'show' / name)) for name in names]
    # Truth and prediction beside each other.
    assert [p.shape for p in pictures] == [(64, 128, 3)] * 2
    difference = np.abs(np.subtract(*pictures, dtype=float)).mean(axis=(0, 2))
    # mmdet jitters the colours of masks.
    assert 3 * difference[:64].mean() < difference[64:].mean()


def test_mmdets_own_metric_is_refused_on_fewer_images(make_runner, det_cfg):
    det_cfg.test_evaluator = dict(type='CocoMetric', metric='bbox')
    with pytest.raises(ValueError, match="'CocoMetric' is .*StitchCocoMetric.*--limit"):
        make_runner(limit=2).test()


def test_a_stitch_that_detects_nothing_scores_nothing(make_runner, det_cfg):
    det_cfg.model.test_cfg.rcnn.score_thr = 2
    det_cfg.test_evaluator = dict(type='CocoMetric', metric=['bbox', 'segm'])
    metrics = make_runner(stitches=[0, 1]).test()
    assert set(metrics.values()) == {0}
    assert {'stitch_0/coco/bbox_mAP', 'stitch_1/coco/segm_mAP_50'} <= set(metrics)


@pytest.mark.parametrize('annotated', [True, False])
def test_undefined_precisions_are_no_numbers(make_runner, det_cfg, tmp_path, annotated):
    """pycocotools gives -1, as for small objects where there are none."""
    box = dict(image_id=0, bbox=[4, 4, 50, 50], area=2500, iscrowd=0, category_id=1)
    image = dict(id=0, file_name='0.png', height=64, width=64)
    content = dict(images=[image], categories=[dict(id=1, name='object')])
    content['annotations'] = [dict(box, id=1)] * annotated
    (tmp_path / 'truth.json').write_text(json.dumps(content))
    det_cfg.test_dataloader.dataset.num_scenes = 1
    det_cfg.test_evaluator = dict(
        type='CocoMetric', metric='bbox', ann_file=str(tmp_path / 'truth.json')
    )
    runner = make_runner(stitches=[0], out_dir=str(tmp_path))
    runner.test_evaluator.dataset_meta = dict(classes=('object',))
    runner.test()
    (row,) = json.loads((tmp_path / 'stitches.json').read_text())['stitches']
    found = {name.rpartition('_')[2]: v for name, v in row['metrics'].items()}
    assert found['s'] is None
    assert (found['mAP'] is None) is not annotated
    assert (found['m'] is None) is not annotated
