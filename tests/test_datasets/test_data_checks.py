import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from mmengine.logging import MMLogger
from torch.utils.data import ConcatDataset

from snnet_mm.datasets import check_annotation_file, check_data_folders
from snnet_mm.datasets.data_checks import check_categories, check_objects

IMAGES = dict(data_prefix='images')
BOXES = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
PANOPTIC = [dict(type='LoadPanopticAnnotations')]
# mmdet's stock Mask2Former for instances inherits a panoptic config's folder.
INHERITED = dict(data_prefix=dict(img='images', seg='nothing'), pipeline=[BOXES])
NAMES = dict(classes='car')
MASKS = dict(img_path='images', seg_map_path='nothing')
LOAD = dict(type='LoadImageFromFile')


@pytest.fixture
def root(tmp_path):
    """A folder with an image and annotations, and empty ones."""
    for folder in ('images', 'empty'):
        (tmp_path / folder).mkdir()
    (tmp_path / 'empty.json').touch()
    for name in ('images/0.jpg', 'full.json', 'names.txt'):
        (tmp_path / name).write_text('{}')
    return tmp_path


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(data_prefix=dict(img_path='images'), ann_file='full.json'), None),
        (INHERITED, None),
        (dict(data_prefix='empty'), 'empty.*val_dataloader.dataset.data_prefix'),
        (dict(data_prefix=dict(img_path='nothing')), 'nothing.*data_prefix.img_path'),
        (dict(data_prefix=MASKS, pipeline=[LOAD]), None),  # for format_only
        (dict(data_prefix=MASKS, pipeline=[LOAD, BOXES]), 'nothing.*seg_map_path'),
        (dict(data_prefix=MASKS), 'nothing.*data_prefix.seg_map_path'),
        (INHERITED | dict(pipeline=PANOPTIC), 'nothing.*data_prefix.seg'),
        (INHERITED | dict(pipeline=[dict(BOXES, with_seg=True)]), 'nothing.*seg'),
        (IMAGES | dict(metainfo=NAMES), "classes='car'.*val_dataloader.dataset.meta"),
        (IMAGES | dict(dataset=dict(metainfo=NAMES)), "classes='car' is invalid"),
        (IMAGES | dict(ann_file='empty.json'), 'empty.json.*dataset.ann_file'),
        (IMAGES | dict(ann_file='nothing.json'), 'nothing.json.*dataset.ann_file'),
    ],
)
def test_check_data_folders_names_what_is_missing(root, settings, words):
    loader = dict(dataset=dict(data_root=str(root), **settings))
    if words is None:
        check_data_folders(loader, 'val_dataloader')
        # mm reads class names from a file.
        loader['dataset']['metainfo'] = dict(classes=str(root / 'names.txt'))
        check_data_folders(loader, 'val_dataloader')
    else:
        with pytest.raises(ValueError, match=words):
            check_data_folders(loader, 'val_dataloader')


def test_check_annotation_file_empty_one_of_metric(root):
    check_annotation_file(dict(ann_file=str(root / 'full.json')), 'test_evaluator')
    with pytest.raises(ValueError, match='test_evaluator.ann_file'):
        check_annotation_file(dict(ann_file=str(root / 'empty.json')), 'test_evaluator')


class Boxes(list):
    """A data set of images with boxes, as mmdet's."""

    def get_data_info(self, index):
        return dict(instances=self[index])


@pytest.mark.parametrize(
    ('classes', 'names', 'message'),
    [
        (['car', 'dog'], ['car', 'dog'], None),
        (['Car'], ['car', 'dog'], "did you mean 'car'"),
        (['car', 'dog'], ['car', 'dog', 'car'], 'car.* is invalid.*some'),
        (['dog', 'car'], ['car', 'dog'], None),
    ],
)
def test_check_objects_class_names_fit_the_file(
    tmp_path, caplog, classes, names, message
):
    MMLogger.get_current_instance().addHandler(caplog.handler)
    content = dict(categories=[dict(id=i, name=n) for i, n in enumerate(names, 3)])
    (tmp_path / 'some.json').write_text(json.dumps(content))
    data = Boxes([[dict(ignore_flag=0)]])
    data.ann_file, data.metainfo = str(tmp_path / 'some.json'), dict(classes=classes)
    data.cat_ids = [i for i, name in enumerate(names, 3) if name in classes]
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        check_objects(ConcatDataset([data]), 'val_dataloader.dataset')
    # Labels have the order of the file.
    assert ('has the order of' in caplog.text) is (classes == ['dog', 'car'])


@pytest.mark.parametrize('instances', [[], [dict(ignore_flag=1)]])
def test_check_objects_one_is_kept(instances):
    none, one = Boxes([instances]), Boxes([[dict(ignore_flag=0)]])
    with pytest.raises(ValueError, match='val_dataloader'):
        check_objects(ConcatDataset([none]), 'val_dataloader.dataset')
    check_objects(ConcatDataset([none, one]), 'any')


def test_check_categories_without_class_names_reads_no_file():
    check_categories(SimpleNamespace(cat_ids=[1], ann_file='none', metainfo={}), 'key')


@pytest.mark.parametrize(
    ('classes', 'place'),
    [
        (['blue', 'green', 'red'], None),
        (['red', 'green', 'blue'], "'red' is 2"),
        (['Blue', 'Red', 'Green'], "'Red' is 2"),
        (['sky', 'blue'], "'blue' is 0"),  # another name of the first folder
        (['sea', 'grass', 'fire'], None),  # names to show
        (None, None),
    ],
)
def test_check_categories_names_are_in_the_order_of_folders(classes, place):
    """mmpretrain numbers the folders in sorted order, whatever the names."""
    folders = dict(blue=0, green=1, red=2)
    data = SimpleNamespace(folder_to_idx=folders, metainfo=dict(classes=classes))
    message = f'{place} .*data.metainfo.classes'
    with pytest.raises(ValueError, match=message) if place else nullcontext():
        check_categories(data, 'data')
