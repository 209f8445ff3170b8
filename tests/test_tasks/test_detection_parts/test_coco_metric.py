"""Detectors in training, and all their stitches in one pass."""

import json

import cv2
import numpy as np
import pytest
from mmengine.registry import DATASETS

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


def test_one_pass_equals_mmdets_own_one_at_a_time(make_runner, tmp_path, capsys):
    together = make_runner(out_dir=str(tmp_path)).test()
    written = json.loads((tmp_path / 'stitches.json').read_text())
    assert written['metric'] == 'coco/bbox_mAP'
    assert 'Average Precision' not in capsys.readouterr().out
    assert together == one_at_a_time(make_runner('TestLoop'))
    assert set(together) == {f'stitch_{i}/{name}' for i in IDS for name in NAMES}
    for name, least in (('coco/bbox_mAP', 4), ('coco/segm_mAP', 3)):
        assert len({together[f'stitch_{i}/{name}'] for i in IDS}) >= least


def test_fewer_images_are_counted_as_a_smaller_data_set(make_runner, det_cfg):
    limited = make_runner(limit=2).test()
    det_cfg.test_dataloader.dataset.indices = [0, 2]
    assert limited == one_at_a_time(make_runner('TestLoop'))


def test_screening_does_not_keep_the_first_ground_truth(make_runner):
    screened = make_runner(screen=2, keep=1).test()
    whole = make_runner(stitches=[0, 1]).test()
    for name in (f'stitch_{anchor}/{name}' for anchor in (0, 1) for name in NAMES):
        assert screened[name] == whole[name]


def test_images_without_objects_are_among_the_others(make_runner, det_cfg):
    det_cfg.test_dataloader.dataset.num_objects = (0, 1)
    data = DATASETS.build(det_cfg.test_dataloader.dataset)
    found = [len(data.get_data_info(i)['instances']) for i in range(4)]
    assert 0 in found
    assert any(found)
    assert make_runner().test() == one_at_a_time(make_runner('TestLoop'))


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


def test_of_an_annotation_file_the_images_that_were_seen_count(
    make_runner, det_cfg, tmp_path
):
    # Inside, partly outside, outside, partly outside, and without a width.
    boxes = [(10, 10, 20, 20), (50, 40, 40, 60), (80, 80, 10, 10), (-20, -20, 30, 30)]
    annotations = [
        dict(image_id=i, bbox=[x, y, w, h], area=w * h, iscrowd=0, category_id=1)
        | dict(segmentation=[[x, y, x + w, y, x + w, y + h, x, y + h]])
        for i in (0, 1)
        for x, y, w, h in [*boxes, (30, 30, 0, 5)]
    ]
    data = det_cfg.test_dataloader.dataset
    load, size = dict(type='LoadImageFromFile'), dict(type='Resize', scale=(64, 64))
    det_cfg.test_dataloader.dataset = dict(
        type='CocoDataset',
        test_mode=True,
        metainfo=dict(classes=('cell',), palette=[(220, 20, 60)]),
        data_prefix=dict(img=str(tmp_path)),
        pipeline=[load, size, data.pipeline[-1]],
    )
    for head in (det_cfg.model.roi_head.bbox_head, det_cfg.model.roi_head.mask_head):
        head.num_classes = 1
    images, found = [], []
    for i in range(2):
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f'{i}.png'), pixels)
        images.append(dict(id=i, file_name=f'{i}.png', height=64, width=64))
        told = [dict(a, id=n) for n, a in enumerate(annotations) if a['image_id'] <= i]
        content = dict(images=images, annotations=told)
        content['categories'] = [dict(id=1, name='cell')]
        path = tmp_path / f'{i}.json'
        path.write_text(json.dumps(content))
        det_cfg.test_dataloader.dataset.ann_file = str(path)
        det_cfg.test_evaluator.ann_file = str(path)
        found.append(make_runner(stitches=[0, 1], limit=1).test())
    assert found[0] == found[1]
    assert max(found[0].values()) > 0
