"""Detectors in training, and all their stitches in one pass."""

import copy
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.hooks import Hook
from mmengine.registry import DATASETS
from mmengine.runner import Runner

from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops
pytest.importorskip('mmdet')

IDS = [0, 4, 12, 1]
LOAD = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
NAMES = [
    f'coco/{kind}_{item}' for kind in ('bbox', 'segm') for item in ('mAP', 'mAP_50')
]


class Crash(Hook):
    def before_test_iter(self, runner, batch_idx, data_batch=None):
        if batch_idx == 11:
            raise RuntimeError('stands for a crash')


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
    whole = make_runner().test()
    for name in (f'stitch_{anchor}/{name}' for anchor in (0, 1) for name in NAMES):
        assert screened[name] == whole[name]


def test_a_crashed_test_goes_on(make_runner, det_cfg):
    det_cfg.test_dataloader.update(batch_size=1)
    det_cfg.test_dataloader.dataset.num_scenes = 12
    whole = make_runner(stitches=[0, 4]).test()
    runner = make_runner(stitches=[0, 4])
    runner.register_hook(Crash())
    with pytest.raises(RuntimeError, match='stands for a crash'):
        runner.test()
    (spooled,) = Path(det_cfg.work_dir).glob('partial_test/*/rank0/stitch_4.results')
    assert spooled.stat().st_size > 1000
    runner, seen = make_runner(stitches=[0, 4], resume=True), []
    runner.model.neck.register_forward_hook(
        lambda neck, maps, levels: None if levels[0].is_meta else seen.append(1)
    )
    assert runner.test() == whole
    # Two of twelve images by two stitches; the costs are counted besides.
    assert len(seen) == 4


def test_a_stitch_that_detects_nothing_scores_zero(make_runner, det_cfg):
    det_cfg.model.test_cfg.rcnn.score_thr = 1.1
    metrics = make_runner(stitches=[0, 1]).test()
    assert metrics == {f'stitch_{i}/{name}': 0.0 for i in (0, 1) for name in NAMES}


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


def test_training_on_scenes_without_objects_and_validation(det_cfg):
    det_cfg.train_dataloader.dataset.num_objects = (0, 0)
    det_cfg.val_dataloader = copy.deepcopy(det_cfg.test_dataloader)
    det_cfg.val_evaluator = copy.deepcopy(det_cfg.test_evaluator)
    det_cfg.val_cfg = dict(type='StitchValLoop', stitches='0,4')
    det_cfg.train_cfg.val_interval = 2
    runner = Runner.from_cfg(det_cfg)
    runner.train()
    assert all(p.isfinite().all() for p in runner.model.parameters())
    losses = runner.message_hub.get_scalar('train/loss').data[0]
    assert np.isfinite(losses).all()
    assert len(losses) == 2
    validated = runner.message_hub.log_scalars
    names = {f'val/stitch_{i}/{name}' for i in (0, 4) for name in NAMES}
    assert {n for n in validated if n.startswith('val/stitch')} == names


def coco_file(path, boxes_of_images):
    """Write annotations; each box is (x, y, w, h)."""
    boxes = [(i, box) for i, boxes in enumerate(boxes_of_images) for box in boxes]
    annotations = []
    for n, (i, (x, y, w, h)) in enumerate(boxes, start=1):
        outline = [x, y, x + w, y, x + w, y + h, x, y + h]
        box = dict(bbox=[x, y, w, h], area=w * h, segmentation=[outline], iscrowd=0)
        annotations.append(dict(id=n, image_id=i, category_id=1, **box))
    ids = range(len(boxes_of_images))
    images = [dict(id=i, file_name=f'{i}.png', height=64, width=64) for i in ids]
    content = dict(images=images, annotations=annotations)
    path.write_text(json.dumps(content | dict(categories=[dict(id=1, name='cell')])))
    return str(path)


def test_boxes_outside_the_image_and_annotation_files(det_cfg, tmp_path):
    # Inside, partly outside, outside, partly outside, and without a width.
    boxes = [(10, 10, 20, 20), (50, 40, 40, 60), (80, 80, 10, 10), (-20, -20, 30, 30)]
    boxes += [(30, 30, 0, 5)]
    both = coco_file(tmp_path / 'both.json', [boxes, boxes[:2]])
    first = coco_file(tmp_path / 'first.json', [boxes])
    random = np.random.default_rng(0)
    for i in range(2):
        image = random.integers(0, 256, (64, 64, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f'{i}.png'), image)
    data = dict(ann_file=both, data_prefix=dict(img=str(tmp_path)))
    data['metainfo'] = dict(classes=('cell',), palette=[(220, 20, 60)])
    load, size = dict(type='LoadImageFromFile'), dict(type='Resize', scale=(64, 64))
    pack = det_cfg.test_dataloader.dataset.pipeline[-1]
    data['pipeline'] = [load, LOAD, size, dict(type='PackDetInputs')]
    det_cfg.train_dataloader.dataset = dict(
        type='SeededDataset', of='CocoDataset', **data
    )
    data['pipeline'] = [load, size, pack]
    det_cfg.test_dataloader.dataset = dict(type='CocoDataset', test_mode=True, **data)
    det_cfg.test_evaluator.ann_file = both
    det_cfg.test_cfg.update(stitches=[0, 1], limit=1)
    for head in (det_cfg.model.roi_head.bbox_head, det_cfg.model.roi_head.mask_head):
        head.num_classes = 1
    runner = Runner.from_cfg(det_cfg)
    runner.train()
    assert np.isfinite(runner.message_hub.get_scalar('train/loss').data[0]).all()
    limited = runner.test()
    assert max(limited.values()) > 0
    # Of the annotations in the file those of the image that was seen count.
    det_cfg.test_dataloader.dataset.ann_file = first
    det_cfg.test_evaluator.ann_file = first
    alone = Runner.from_cfg(det_cfg)
    alone.model.load_state_dict(runner.model.state_dict())
    assert alone.test() == limited
