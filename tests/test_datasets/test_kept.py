import json

import numpy as np
import pytest
from labelled_folders import halves, write, write_coco, write_masks
from mmengine.config import Config

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.kept import count_kept


def config(data, root, kind, scope, *transforms):
    """Return a config of the data of a folder, whose lists are written there."""
    loaders = {}
    for split, (_, prefix, annotations) in data.splits.items():
        text = json.dumps(annotations)
        if isinstance(annotations, list):
            text = '\n'.join(annotations)
        (root / f'{split}.txt').write_text(text)
        inside = dict(type=kind, data_root=str(root), data_prefix=prefix)
        inside['ann_file'] = str(root / f'{split}.txt')
        inside['metainfo'] = dict(classes=data.classes)
        inside['pipeline'] = [dict(type=name, **kwargs) for name, kwargs in transforms]
        # Its length, an augmentation and wrappers do not count.
        dataset = dict(type='RepeatDataset', times=3, dataset=inside)
        loaders[f'{split}_dataloader'] = dict(dataset=dataset)
    return Config(dict(default_scope=scope, **loaders))


def test_count_kept_pixels_as_loaded(tmp_path):
    pytest.importorskip('mmseg')
    write_masks(tmp_path)
    write(tmp_path / 'masks/train/0.png', halves(high=2, dtype=np.uint16))
    data = read_folder(tmp_path, 'seg')
    transforms = (
        ('LoadImageFromFile', {}),
        ('LoadAnnotations', {}),
        ('RandomFlip', dict(prob=1.0)),
    )
    cfg = config(data, tmp_path, 'PairedDataset', 'mmseg', *transforms)
    assert count_kept(data, cfg) == ([13 * 800, 12 * 1600, 1600], [])
    (tmp_path / 'masks/val/1.png').write_bytes(b'')
    with pytest.raises(ValueError, match='cannot load the labels of .*val/1.jpg'):
        count_kept(data, cfg)


def test_count_kept_objects_that_mmdet_ignores(tmp_path):
    pytest.importorskip('mmdet')
    write_coco(tmp_path, segmentation=[[0, 0, 9, 0, 9, 9]])
    file = tmp_path / 'annotations/instances_train.json'
    content = json.loads(file.read_text())
    others = dict(iscrowd=1), dict(ignore=1), dict(bbox=[60, 0, 5, 5]), {}
    for x, other in zip(content['annotations'], others, strict=True):
        x |= other
    file.write_text(json.dumps(content))
    data = read_folder(tmp_path, 'det')
    load = ('LoadAnnotations', dict(with_bbox=True, with_mask=True))
    cfg = config(
        data, tmp_path, 'CocoDataset', 'mmdet', ('LoadImageFromFile', {}), load
    )
    kept, (unused, other) = count_kept(data, cfg)
    assert kept == [5, 0]
    assert unused == '1 classes without a label: person'
    assert other.endswith('car: 5 instead of 8')
    cfg.val_dataloader.dataset.dataset.metainfo.classes = ['person']
    with pytest.raises(ValueError, match='no label of the val images is kept'):
        count_kept(data, cfg)
