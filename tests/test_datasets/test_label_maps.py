import numpy as np
import pytest
from labelled_folders import halves, write, write_depth, write_masks
from PIL import Image

from snnet_mm.datasets.folders import read_folder


def read(root, task='seg', **kwargs):
    return read_folder(root, task, **kwargs)


def pairs(found):
    """Return the files of all splits, relative to the root."""
    for part in found.splits.values():
        lines = [line.split('\t') for line in part.annotations]
        for line in lines:
            yield tuple(map('/'.join, zip(part.prefix.values(), line, strict=True)))


@pytest.mark.parametrize(
    ('train', 'val'),
    [
        ('img_dir/training ann_dir/training', 'img_dir/test ann_dir/test'),
        ('Train/Images Train/Masks', 'Validation/Images Validation/Masks'),
    ],
)
def test_masks_reads_splits(tmp_path, train, val):
    write_masks(tmp_path, train, val)
    found = read(tmp_path)
    assert (found.task, found.classes) == ('seg', ['class_0', 'class_1'])
    assert (found.sizes, found.notes) == ({(40, 60): 13}, [])
    assert found.counts == dict(class_0=13 * 800, class_1=13 * 1600)
    for split, folders, number in (('train', train, 10), ('val', val, 3)):
        images, masks = folders.split()
        prefix = dict(img_path=images, seg_map_path=masks)
        lines = [f'{i}.jpg\t{i}.png' for i in range(number)]
        assert found.splits[split] == (number, prefix, lines)


def test_masks_are_always_divided_alike(tmp_path):
    write_masks(tmp_path, 'images masks', '')
    found = read(tmp_path, classes=['a', 'b', 'c'])
    assert found.notes == ['1 classes without a label: c']
    assert [part.number for part in found.splits.values()] == [8, 2]
    every = sum((part.annotations for part in found.splits.values()), [])
    assert sorted(every) == [f'{i}.jpg\t{i}.png' for i in range(10)]
    assert read(tmp_path).splits == found.splits


@pytest.mark.parametrize(
    ('image', 'label'),
    [
        ('{}', '{}.jpg'),
        ('img{}', 'label{}'),
        ('a b/x.{}-rgb', 'a b/x.{}-gt'),
        ('ulm/ulm_{}_leftImg8bit', 'ulm/ulm_{}_gtFine_labelIds'),
        ('ISIC_00{}', 'ISIC_00{}_segmentation'),
        ('{}_train', '{}_gt_mask'),
    ],
)
def test_label_maps_names_with_words_around(tmp_path, image, label):
    """Words may stand before and after what images and labels share."""
    for i in (1, 2, 3, 10, 11, 12):
        write(tmp_path / 'images' / f'{image.format(i)}.jpg', (40, 60))
        if i != 11:
            write(tmp_path / 'masks' / f'{label.format(i)}.png', halves())
    found = read(tmp_path)
    names = f'images/{image}.jpg', f'masks/{label}.png'
    assert {*pairs(found)} == {
        tuple(name.format(i) for name in names) for i in (1, 2, 3, 10, 12)
    }
    (note,) = found.notes
    assert note.endswith(f'without a label, left out: {image.format(11)}')


@pytest.mark.parametrize(
    'label', ['{}', '2020_{}', '2021_{}_color 2021_{}_ids', '2021_{} 2021_{}.tif']
)
def test_label_maps_ambiguous_names_raise(tmp_path, label):
    """Names that do not tell the label are refused."""
    for i in range(4):
        write(tmp_path / f'images/2021_{i}.jpg', (40, 60))
        for name in label.split():
            path = tmp_path / 'masks' / name.format(i)
            write(path if path.suffix else path.with_suffix('.png'), halves())
    with pytest.raises(ValueError, match='_0.jpg and .*one label'):
        read(tmp_path)


@pytest.mark.parametrize('kind', ['1', 'P', 'I;16'])
def test_masks_reads_other_modes(tmp_path, kind):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        mask = halves(dtype=np.uint16) if kind == 'I;16' else halves()
        image = Image.fromarray(mask > 0 if kind == '1' else mask)
        if kind == 'P':
            image = image.convert('P')
            image.putpalette([9, 9, 9, 200, 0, 0])
        image.save(path)
    assert Image.open(path).mode == kind
    assert read(tmp_path).classes == ['class_0', 'class_1']


@pytest.mark.parametrize(
    ('mask', 'classes', 'message'),
    [
        (halves(high=4), 'ab', r'5.png .*\[4\]: .* 0 to 1,.*--classes'),
        (halves(high=4), '', r'\[0, 1, 4\]: .*--classes'),
        (halves(20, 60), '', r'5.png .*\(20, 60\).*\(40, 60\)'),
        ((40, 60), '', 'mode RGB: .*color_masks.py'),
        (None, '', '5.png cannot be read'),
        (halves(high=256, dtype=np.uint16), '', r'5.png .*\[256\]: expected 0 to 254'),
        (halves(), [*map(str, range(256))], "'256 names' is invalid.*--class"),
    ],
)
def test_masks_wrong_content_raises(tmp_path, mask, classes, message):
    write_masks(tmp_path)
    path = tmp_path / 'masks/train/5.png'
    path.write_bytes(b'') if mask is None else write(path, mask)
    with pytest.raises(ValueError, match=message):
        read(tmp_path, classes=classes)


@pytest.mark.parametrize(('low', 'classes'), [(0, ''), (0, 'abc'), (255, 'ab')])
def test_masks_binary_of_0_and_255(tmp_path, low, classes):
    write_masks(tmp_path)
    write(tmp_path / 'masks/val/0.png', halves(low=255, high=1))
    note = '1 masks have the label 255, ignored: 0.png'
    assert note in read(tmp_path, classes=classes).notes
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=low, high=255))
    with pytest.raises(ValueError, match=r'255\]: .*--classes gives both'):
        read(tmp_path, classes=classes)


def test_masks_of_0_and_255_are_two_named_classes(tmp_path):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=0, high=255))
    write(tmp_path / 'masks/val/0.png', halves(low=0, high=0))
    found = read(tmp_path, classes='ab')
    assert found.facts == dict(label_map={255: 1})
    assert [note.split(':')[0] for note in found.notes] == [
        '12 masks have 255, read as b'
    ]
    assert found.counts == dict(a=12 * 800 + 2400, b=12 * 1600)


def test_depth_maps_read_or_refused(tmp_path):
    write_depth(tmp_path)
    write(tmp_path / 'depth/2.png', np.zeros((40, 60), np.uint16))
    found = read(tmp_path, 'depth')
    assert (found.task, found.classes, found.notes) == ('depth', [], [])
    assert found.facts['depths'] == (1000, 4200, 4200)
    assert found.splits['val'].prefix == dict(img_path='rgb', depth_map_path='depth')
    write(tmp_path / 'depth/3.png', halves(high=65535, dtype=np.uint16))
    (note,) = read(tmp_path, 'depth').notes
    assert note.startswith('1 depth maps reach 65535')
    for i in range(5):
        write(tmp_path / f'depth/{i}.png', halves(dtype=np.uint16))
    with pytest.raises(ValueError, match='--task seg'):
        read(tmp_path, 'depth')
    with pytest.raises(ValueError, match='--classes'):
        read(tmp_path, 'depth', classes=['a'])


def test_label_maps_lists_of_splits(tmp_path):
    """As in Pascal VOC."""
    write_masks(tmp_path, 'JPEGImages SegmentationClass', '')
    folder = tmp_path / 'ImageSets/Segmentation'
    folder.mkdir(parents=True)
    (folder / 'train.txt').write_text('4\n0\n77\n')
    (folder / 'val.txt').write_text('7\n')
    found = read(tmp_path)
    names = {split: part.annotations for split, part in found.splits.items()}
    assert names == dict(train=['0.jpg\t0.png', '4.jpg\t4.png'], val=['7.jpg\t7.png'])
    (note,) = found.notes
    assert f'names in {folder}/train.txt match no image with a label' in note
    assert '77' in note
