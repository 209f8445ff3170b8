import numpy as np
import pytest
from labelled_folders import halves, write, write_depth, write_masks
from PIL import Image

from snnet_mm.datasets.folders import read_folder


def read(root, task='seg', **kwargs):
    return read_folder(root, task, **kwargs)


def pairs(part):
    """Return the files of a split, relative to the root."""
    folders = part.dataset['data_prefix'].values()
    lines = [line.split('\t') for line in part.annotations]
    return [tuple(map('/'.join, zip(folders, line, strict=True))) for line in lines]


@pytest.mark.parametrize(
    ('train', 'val'),
    [
        ('img_dir/training ann_dir/training', 'img_dir/test ann_dir/test'),
        ('Train/Images Train/Masks', 'Validation/Images Validation/Masks'),
    ],
)
def test_read_pairs_of_masks(tmp_path, train, val):
    write_masks(tmp_path, train, val)
    found = read(tmp_path)
    assert (found.task, found.classes) == ('seg', ['class_0', 'class_1'])
    assert found.counts == [13 * 40 * 20, 13 * 40 * 40]
    assert found.sizes == {(40, 60): 13}
    assert found.notes == []
    for split, folders, number in (('train', train, 10), ('val', val, 3)):
        images, masks = folders.split()
        prefix = dict(img_path=images, seg_map_path=masks)
        assert found.splits[split].dataset == dict(data_prefix=prefix)
        expected = [f'{i}.jpg\t{i}.png' for i in range(number)]
        assert found.splits[split].annotations == expected


def test_read_pairs_divides_a_folder_always_alike(tmp_path):
    write_masks(tmp_path, 'images masks', '')
    found = read(tmp_path, classes=['a', 'b', 'c'])
    assert found.notes == ['1 classes without a pixel: c']
    names = {split: part.annotations for split, part in found.splits.items()}
    assert {split: len(part) for split, part in names.items()} == dict(train=8, val=2)
    every = sorted(names['train'] + names['val'])
    assert every == [f'{i}.jpg\t{i}.png' for i in range(10)]
    again = read(tmp_path).splits
    assert {split: part.annotations for split, part in again.items()} == names


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
def test_match_names_with_words_before_and_after_them(tmp_path, image, label):
    for i in (1, 2, 3, 10, 11, 12):
        write(tmp_path / 'images' / f'{image.format(i)}.jpg', (40, 60))
        if i != 11:
            write(tmp_path / 'masks' / f'{label.format(i)}.png', halves())
    found = read(tmp_path)
    names = f'images/{image}.jpg', f'masks/{label}.png'
    assert {*pairs(found.splits['train']), *pairs(found.splits['val'])} == {
        tuple(name.format(i) for name in names) for i in (1, 2, 3, 10, 12)
    }
    without = f'1 images of {tmp_path} without a label, left out'
    assert found.notes == [f'{without}: {image.format(11)}']


@pytest.mark.parametrize('name', ['{}', '2020_{}'])
def test_match_other_numbers_are_refused(tmp_path, name):
    for i in range(4):
        write(tmp_path / f'images/2021_{i}.jpg', (40, 60))
        write(tmp_path / 'masks' / f'{name.format(i)}.png', halves())
    with pytest.raises(ValueError, match='no image of .*_0.jpg, has a label, such as'):
        read(tmp_path)


def test_match_several_labels_of_an_image(tmp_path):
    """Cityscapes has three; of others, one must be chosen by the user."""
    for i in range(1, 5):
        write(tmp_path / f'leftImg8bit/train/x/x_{i}_leftImg8bit.png', (40, 60))
        for end in ('labelIds', 'instanceIds', 'color'):
            mask = halves(high=1 if end == 'labelIds' else 9)
            write(tmp_path / f'gtFine/train/x/x_{i}_gtFine_{end}.png', mask)
    assert read(tmp_path).counts == [4 * 40 * 20, 4 * 40 * 40]
    for path in tmp_path.rglob('*labelIds.png'):
        path.unlink()
    with pytest.raises(ValueError, match='expected one label for every image'):
        read(tmp_path)


def test_read_pairs_of_one_name(tmp_path):
    write_masks(tmp_path)
    write(tmp_path / 'images/train/10.png', (40, 60))
    write(tmp_path / 'masks/train/10.tif', halves())
    write(tmp_path / 'images/test/0.jpg', (40, 60))
    found = read(tmp_path)
    assert found.splits['train'].annotations[2] == '10.png\t10.tif'
    assert found.notes == ['test of the images or labels has no partner: left out']
    write(tmp_path / 'images/train/10.jpg', (40, 60))
    with pytest.raises(ValueError, match='10.jpg and .*10.png: expected one file for'):
        read(tmp_path)


def test_read_pairs_lists_of_splits(tmp_path):
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
    assert note == f'1 names in {folder}/train.txt are of no image with a label: 77'


def test_read_pairs_masks_without_a_class(tmp_path):
    write_masks(tmp_path)
    write(tmp_path / 'masks/val/0.png', halves(low=255, high=255))
    found = read(tmp_path)
    assert found.counts == [12 * 40 * 20, 12 * 40 * 40]
    assert found.notes == [
        '1 masks have the label 255, ignored (7.7% of all pixels): 0.png'
    ]


@pytest.mark.parametrize('kind', ['1', 'P', 'I;16'])
def test_read_pairs_kinds_of_masks(tmp_path, kind):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        mask = halves(dtype=np.uint16) if kind == 'I;16' else halves()
        image = Image.fromarray(mask > 0 if kind == '1' else mask)
        if kind == 'P':
            image = image.convert('P')
            image.putpalette([9, 9, 9, 200, 0, 0])
        image.save(path)
    assert Image.open(path).mode == kind
    assert read(tmp_path).counts == [13 * 40 * 20, 13 * 40 * 40]


@pytest.mark.parametrize(
    ('mask', 'classes', 'message'),
    [
        (halves(high=4), 'ab', r'5.png has the labels \[4\]: expected 0 to 1'),
        (halves(high=4), '', r'labels \[0, 1, 4\]: expected 0, 1, 2 .*--classes'),
        (halves(20, 60), '', r'5.png has \(20, 60\) pixels: expected \(40, 60\)'),
        ((40, 60), '', 'mode RGB: expected a PNG of one channel.*color_masks.py'),
        (None, '', '5.png cannot be read'),
        (halves(high=256, dtype=np.uint16), '', r'5.png .*\[256\]: expected 0 to 254'),
        (halves(), [*map(str, range(256))], "'256 names' is invalid.*--class"),
    ],
)
def test_read_pairs_wrong_masks(tmp_path, mask, classes, message):
    write_masks(tmp_path)
    path = tmp_path / 'masks/train/5.png'
    path.write_bytes(b'') if mask is None else write(path, mask)
    with pytest.raises(ValueError, match=message):
        read(tmp_path, classes=classes)


@pytest.mark.parametrize(('low', 'classes'), [(0, ''), (0, 'ab'), (255, '')])
def test_read_pairs_binary_masks_of_0_and_255(tmp_path, low, classes):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=low, high=255))
    with pytest.raises(ValueError, match='255.*set object pixels to 1, as in docs/'):
        read(tmp_path, classes=classes)


def test_read_pairs_of_depth(tmp_path):
    write_depth(tmp_path)
    write(tmp_path / 'depth/2.png', np.zeros((40, 60), np.uint16))
    found = read(tmp_path, 'depth')
    assert (found.task, found.classes, found.counts) == ('depth', [], [])
    assert found.facts['depths'] == (1000, 4200, 4200)
    assert found.notes == ['1 depth maps without a depth above 0: 2.png']
    prefix = dict(img_path='rgb', depth_map_path='depth')
    assert found.splits['val'].dataset == dict(data_prefix=prefix)
    write(tmp_path / 'depth/3.png', halves(high=65535, dtype=np.uint16))
    note, _ = read(tmp_path, 'depth').notes
    assert note.startswith('1 depth maps reach 65535')
    write(tmp_path / 'depth/3.png', halves())
    with pytest.raises(ValueError, match='3.png has 8 bits: expected a depth map of'):
        read(tmp_path, 'depth')
    for i in range(5):
        write(tmp_path / f'depth/{i}.png', halves(dtype=np.uint16))
    with pytest.raises(ValueError, match='values of 1 at most: expected .*--task seg'):
        read(tmp_path, 'depth')


@pytest.mark.parametrize('orientation', [3, 6])
def test_read_pairs_images_that_training_turns(tmp_path, orientation):
    """A quarter turn shows in the size, a half turn does not."""
    write_masks(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.open(tmp_path / 'images/val/0.jpg')
    image.save(tmp_path / 'images/val/0.jpg', exif=exif)
    if orientation == 3:
        (note,) = read(tmp_path).notes
        assert note.startswith('1 images have an EXIF orientation, which')
    else:
        with pytest.raises(
            ValueError, match=r'\(60, 40\) as its image has by its EXIF'
        ):
            read(tmp_path)
