"""Images and boxes that ViTDet's configs read from COCO."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from config_models import read
from mmengine.registry import DATASETS, MODELS
from narrow_configs import NO_CATEGORY, narrow, write_image

FILES = dict(
    two_and_a_crowd=dict(height=48, width=96),
    over_the_edge=dict(height=64, width=64),
    empty=dict(height=40, width=40),
    smaller_than_a_window=dict(height=33, width=35),
)
LARGE = 'vitdet/mask-rcnn_deit3-s_8xb1-100e_coco-1024x1024.py'
SMALL = 'vitdet/mask-rcnn_deit3-s_1xb8-25e_coco-512x512.py'


def annotation(image, box, category=1, **more):
    x, y, w, h = box
    polygon = [x, y, x + w, y, x + w, y + h, x, y + h]
    told = dict(image_id=image, category_id=category, bbox=box, area=w * h, iscrowd=0)
    return told | dict(segmentation=[polygon]) | more


@pytest.fixture(scope='module')
def coco(tmp_path_factory):
    """A few hand-written images in COCO's layout, train and val alike."""
    root = tmp_path_factory.mktemp('coco')
    # Run lengths down the columns of 96x48: background, then 10 columns of crowd.
    crowd = dict(segmentation=dict(size=[48, 96], counts=[86 * 48, 10 * 48]), iscrowd=1)
    annotations = [
        annotation(0, (4, 4, 20, 30)),
        annotation(0, (30, 10, 24, 16), category=90),
        annotation(0, (86, 0, 10, 48), **crowd),
        annotation(1, (50, 50, 30, 30)),  # a part is in the image
        annotation(1, (70, 10, 8, 8)),  # none is
        annotation(3, (5, 5, 20, 20)),
    ]
    ids = [i for i in range(1, 91) if i not in NO_CATEGORY]
    names = DATASETS.get('mmdet.CocoDataset').METAINFO['classes']
    files = [dict(id=i, file_name=f'{n}.jpg', **FILES[n]) for i, n in enumerate(FILES)]
    written = dict(
        images=files,
        annotations=[dict(a, id=i + 1) for i, a in enumerate(annotations)],
        categories=[dict(id=i, name=n) for i, n in zip(ids, names, strict=True)],
    )
    (root / 'annotations').mkdir()
    for split in ('train', 'val'):
        path = root / 'annotations' / f'instances_{split}2017.json'
        path.write_text(json.dumps(written))
        for name, size in FILES.items():
            write_image(root / f'{split}2017/{name}.jpg', **size)
    return root


def samples_of(cfg, mode, root, times=1):
    """Names and samples of a config's data set."""
    dataset = DATASETS.build(
        cfg[f'{mode}_dataloader'].dataset | dict(data_root=str(root))
    )
    for sample in (dataset[i] for _ in range(times) for i in range(len(dataset))):
        yield Path(sample['data_samples'].img_path).stem, sample


def test_training_images_of_coco(coco):
    cfg = read(LARGE)
    for transform in cfg.train_dataloader.dataset.pipeline:
        if transform.type == 'RandomFlip':
            transform.prob = 0.0
        elif transform.type == 'RandomResize':
            # Where the objects land is then known: 1024 pixels on the longer side.
            transform.ratio_range = (1.0, 1.0)
    samples = dict(samples_of(cfg, 'train', coco))
    assert set(samples) == set(FILES) - {'empty'}
    scale = 1024 / 96
    sample = samples['two_and_a_crowd']
    assert sample['inputs'].shape == (3, 512, 1024)
    truth = sample['data_samples'].gt_instances
    expected = torch.tensor([[4.0, 4, 24, 34], [30, 10, 54, 26]]) * scale
    torch.testing.assert_close(truth.bboxes.tensor, expected, atol=1, rtol=0)
    assert truth.labels.tolist() == [0, 79]
    assert truth.masks.masks.shape == (2, 512, 1024)
    areas = truth.masks.masks.sum((1, 2)) / scale**2
    np.testing.assert_allclose(areas, [600, 384], rtol=0.02)
    crowd = sample['data_samples'].ignored_instances
    expected = torch.tensor([[86.0, 0, 96, 48]]) * scale
    torch.testing.assert_close(crowd.bboxes.tensor, expected, atol=1, rtol=0)
    # What is outside is cut off, and gone if nothing is left.
    truth = samples['over_the_edge']['data_samples'].gt_instances
    expected = torch.tensor([[800.0, 800, 1024, 1024]])
    torch.testing.assert_close(truth.bboxes.tensor, expected, atol=1, rtol=0)


def test_jittered_images_of_coco(coco):
    """Any scale from a tenth to twice the size, any crop: boxes stay in the image."""
    sides = []
    for _, sample in samples_of(read(SMALL), 'train', coco, times=8):
        height, width = sample['inputs'].shape[-2:]
        sides.append(max(height, width))
        truth = sample['data_samples'].gt_instances
        boxes = truth.bboxes.tensor
        assert ((boxes >= 0) & (boxes <= torch.tensor([width, height] * 2))).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert truth.masks.masks.shape == (len(boxes), height, width)
    assert min(sides) < 256 < 512 == max(sides)


def test_images_of_coco_in_tests(coco):
    cfg = read(SMALL)
    preprocessor, samples = MODELS.build(cfg.model.data_preprocessor), {}
    for name, sample in samples_of(cfg, 'val', coco):
        samples[name] = sample
        size = [FILES[name][k] for k in ('height', 'width')]
        height, width = (round(side * 512 / max(size)) for side in size)
        assert sample['inputs'].shape == (3, height, width)
        assert sample['data_samples'].ori_shape == tuple(size)
        batch = {k: [v] for k, v in sample.items()}
        padded = preprocessor(batch, training=False)['inputs']
        assert padded.shape == (1, 3, 512, 512)
        assert padded[..., height:, :].count_nonzero() == 0
        assert padded[..., width:].count_nonzero() == 0
    assert set(samples) == set(FILES)


def test_a_loss_without_objects(coco, tmp_path):
    """Every box is background then; nothing is said about boxes and masks."""
    cfg = read(LARGE)
    narrow(cfg, coco, tmp_path)
    model = MODELS.build(cfg.model)
    sample = dict(samples_of(cfg, 'test', coco))['empty']
    batch = {k: [sample[k]] for k in ('inputs', 'data_samples')}
    batch = model.data_preprocessor(batch, training=True)
    losses = model(**batch, mode='loss')
    assert losses['loss_bbox'] == losses['loss_mask'] == 0
    assert all(loss == 0 for loss in losses['loss_rpn_bbox'])
    model.parse_losses(losses)[0].backward()
    gradient = model.backbone.patch_embed.proj.weight.grad
    assert gradient.isfinite().all()
    assert gradient.any()
