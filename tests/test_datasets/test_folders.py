"""Folders of labelled images in all tasks, and what their layouts share."""

import cv2
import numpy as np
import pytest
from labelled_folders import write, write_classes, write_coco, write_depth, write_masks
from PIL import Image

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.image_files import read_all, read_image
from snnet_mm.runtime.image_io import RECORD


@pytest.mark.parametrize(
    ('make', 'task', 'words'),
    [
        (write_masks, 'det', 'images/, masks/; .*own_data.md'),
        (write_masks, 'cls', r"\['images', 'masks'\], .*--task seg"),
        (write_masks, 'depth', '0.png has 8 bits'),
        (write_classes, 'seg', 'segmentation: .*masks/'),
        (lambda root: write(root / 'a/1.jpg', (9, 9)), 'cls', 'every class.*found a/'),
        (lambda root: None, 'seg', 'no images.*argument: FOLDER'),
    ],
)
def test_read_folder_of_another_task_raises(tmp_path, make, task, words):
    make(tmp_path)
    with pytest.raises(ValueError, match=words):
        read_folder(tmp_path, task)


YAML = 'train: images/train\nval: images/val\nnames: [person, car]\n'


def test_read_folder_converted_by_supervision(tmp_path):
    """The conversion in docs/tutorials/own_data.md."""
    supervision = pytest.importorskip('supervision')
    for i in range(2):
        write(tmp_path / f'images/train/{i}.jpg', (40, 60))
        (tmp_path / 'labels/train').mkdir(parents=True, exist_ok=True)
        (tmp_path / f'labels/train/{i}.txt').write_text('1 0.5 0.5 0.5 0.25')
    (tmp_path / 'data.yaml').write_text(YAML)
    paths = [str(tmp_path / name) for name in ('images/train', 'labels/train')]
    read = supervision.DetectionDataset.from_yolo
    data = read(*paths, str(tmp_path / 'data.yaml'))
    data.as_coco(annotations_path=str(tmp_path / 'annotations/train.json'))
    found = read_folder(tmp_path, 'det')
    assert found.counts == dict(car=2)
    val = found.splits['val']
    (x,) = val.annotations['annotations']
    assert x['bbox'] == pytest.approx([15, 15, 30, 10])
    assert found.classes[x['category_id'] - 1] == 'car'
    assert val.prefix == dict(img='images/train')


@pytest.mark.parametrize('splits', [('train/', 'val/'), ('train/', 'test/'), ('',)])
def test_read_folder_of_classes(tmp_path, splits):
    write_classes(tmp_path, splits)
    found = read_folder(tmp_path, 'cls', ['dog', 'cat'])
    assert found.classes == ['cat', 'dog']
    assert found.notes == []
    train, val = found.splits['train'], found.splits['val']
    prefixes = splits[0].strip('/') or '.', splits[-1].strip('/') or '.'
    assert (train.prefix, val.prefix) == prefixes
    if len(splits) == 2:
        assert train.annotations[4:6] == ['cat/cat4.jpg 0', 'dog/dog0.jpg 1']
    else:  # one of every class
        assert [line[-1] for line in val.annotations] == ['0', '1']
        assert train.number == 8
        assert not {*train.annotations} & {*val.annotations}
    for names, words in ((['a', 'b'], "'cat', 'dog'"), (['a', 'a'], 'different names')):
        with pytest.raises(ValueError, match=words):
            read_folder(tmp_path, 'cls', names)
    write(tmp_path / splits[-1] / 'cow/1.jpg', (40, 60))
    with pytest.raises(ValueError, match=r"val .*\['cow'\]" if splits[1:] else '2 or'):
        read_folder(tmp_path, 'cls')


def test_read_folder_of_classes_with_splits_inside(tmp_path):
    for name in ('cat', 'dog'):
        for split in ('train', 'val'):
            write(tmp_path / name / split / f'{split}.jpg', (40, 60))
    found = read_folder(tmp_path, 'cls').splits
    assert found['train'].annotations == [
        'cat/train/train.jpg 0',
        'dog/train/train.jpg 1',
    ]
    assert found['val'].annotations == ['cat/val/val.jpg 0', 'dog/val/val.jpg 1']


def test_read_folder_notes_left_out_and_repeated_images(tmp_path):
    write_classes(tmp_path, ('train/', 'val/', 'test/'))
    for name in ('.thumbs/0.jpg', '@eaDir/0.jpg', '__MACOSX/0.jpg', '._0.jpg'):
        write(tmp_path / 'train/cat' / name, (9, 9))
    write(tmp_path / 'more/1.jpg', (9, 9))
    (tmp_path / 'train/dog/x.gif').touch()
    same = (tmp_path / 'train/cat/cat3.jpg').read_bytes()
    (tmp_path / 'val/cat/cat0.jpg').write_bytes(same)
    found = read_folder(tmp_path, 'cls')
    assert found.sizes == {(40, 60): 20}
    assert found.notes == [
        f'2 splits of {tmp_path} are left out: files without a split, test',
        '1 validation images are training images, too: metrics will be too good: '
        'cat0.jpg',
        '1 files are left out, by their format: x.gif',
    ]


@pytest.mark.parametrize('make', [write_masks, write_coco])
@pytest.mark.parametrize('orientation', [3, 6])
def test_read_folder_images_that_training_turns(tmp_path, make, orientation):
    """A quarter turn shows in the size, a half turn does not."""
    make(tmp_path)
    task = 'seg' if make is write_masks else 'det'
    path = tmp_path / ('images/val/0.jpg' if task == 'seg' else 'val/0.jpg')
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(path).save(path, exif=exif)
    if orientation == 3:
        notes = read_folder(tmp_path, task).notes
        assert any(n.startswith('1 images have an EXIF orientation') for n in notes)
    else:
        with pytest.raises(ValueError, match='EXIF orientation'):
            read_folder(tmp_path, task)


@pytest.mark.parametrize(
    ('make', 'task', 'name'),
    [
        (write_masks, 'seg', 'images/val/1.jpg'),
        (write_masks, 'seg', 'masks/train/1.png'),
        (write_depth, 'depth', 'rgb/2.png'),
        (write_classes, 'cls', 'val/cat/cat4.jpg'),
        (write_coco, 'det', 'train/2.jpg'),
    ],
)
def test_read_folder_names_an_image_beyond_the_limit(
    tmp_path, monkeypatch, make, task, name
):
    """PIL refuses it by an exception that is neither OSError nor ValueError."""
    make(tmp_path)
    path = tmp_path / name
    size = Image.open(path).size
    Image.new('L', (300, 300)).save(path)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', size[0] * size[1] * 2)
    with pytest.raises(
        ValueError, match=f'{path} cannot be read: Image size .* exceeds'
    ):
        read_folder(tmp_path, task)


def test_read_folder_never_reads_predictions(tmp_path):
    write_classes(tmp_path)
    known = read_folder(tmp_path, 'cls').splits['train'].number
    predicted = tmp_path / 'train/masks'
    write(predicted / 'red/0.png', np.zeros((9, 9), np.uint8))
    with pytest.raises(ValueError, match=r"in the classes \['masks'\]"):
        read_folder(tmp_path, 'cls')
    (predicted / RECORD).write_text('{}')
    data = read_folder(tmp_path, 'cls')
    assert 'masks' not in data.classes
    assert data.splits['train'].number == known


@pytest.mark.parametrize('name', ['x.jpg', 'x.png', 'x.webp'])
def test_read_image_turned_as_in_training(tmp_path, name):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(tmp_path / name, exif=exif)
    size = cv2.imread(str(tmp_path / name)).shape[:2]
    assert read_image(tmp_path / name).size == size


@pytest.mark.parametrize(
    ('suffix', 'channels'), [('.png', 1), ('.png', 3), ('.tif', 3)]
)
def test_read_image_of_16_bits_as_in_training(tmp_path, suffix, channels):
    write_depth(tmp_path)
    path = tmp_path / f'deep{suffix}'
    pixels = np.arange(2400, dtype=np.uint16).reshape(40, 60)  # 12 bits
    cv2.imwrite(str(path), np.stack([pixels] * channels, -1))
    facts = read_image(path)
    assert facts == ((40, 60), 1, cv2.imread(str(path)).max()) == ((40, 60), 1, 9)
    for i in range(5):
        cv2.imwrite(str(tmp_path / f'rgb/{i}.png'), np.stack([pixels] * channels, -1))
    with pytest.raises(ValueError, match='rgb/0.png, .* 32 of 255'):
        read_folder(tmp_path, 'depth')


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
def test_read_all_names_damaged_images(tmp_path, suffix):
    paths = [tmp_path / f'{i}{suffix}' for i in range(6)]
    for path in paths:
        write(path, (40, 60))
        if path != paths[0]:
            path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match='truncated.* 2 other files') as caught:
        read_all(read_image, [(p,) for p in paths])
    named = [p.name in str(caught.value) for p in paths]
    assert named == [False, True, True, True, False, False]
    Image.fromarray(np.zeros((4, 6), np.float32)).save(tmp_path / 'x.tif')
    with pytest.raises(ValueError, match='x.tif has floats'):
        read_image(tmp_path / 'x.tif')
