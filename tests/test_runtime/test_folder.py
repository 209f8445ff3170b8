"""Folders of images as files, killed and continued."""

import csv
import json
from itertools import product

import cv2
import numpy as np
import pytest
from killing import fork, wait
from numpy.testing import assert_array_equal
from PIL import Image

from snnet_mm.runtime import Deadline, Detections, predict_folder
from snnet_mm.runtime.folder import count_done, list_images, parse_duration, read_image

CLASSES = 'a', 'b', 'c'
SIZES = (8, 6), (5, 9)


def mask_of(image):
    return image[..., 0].astype(np.int64) % 7


def depth_of(image):
    return image[..., 0] * np.float32(0.4004)  # metres, of up to 102


def objects_of(image):
    """One box for each row, whose mask is the upper half."""
    height, width = image.shape[:2]
    number = int(image[0, 0, 0]) % 3
    boxes = np.tile(np.float32([1, 0, width, height // 2]), (number, 1))
    masks = np.zeros((number, height, width), bool)
    masks[:, : height // 2, 1:] = True
    labels = np.arange(number) % 3
    return Detections(boxes, np.linspace(0.9, 0.5, number), labels, masks)


def probabilities_of(image):
    return np.eye(3)[int(image[0, 0, 0]) % 3] * 0.5 + 0.1


CALLS = dict(segmentation=mask_of, depth=depth_of)
CALLS |= dict(detection=objects_of, classification=probabilities_of)


def predict(task, source, out, **settings):
    def call(images):
        return [CALLS[task](image) for image in images]

    settings = dict(batch_size=2) | settings
    return predict_folder(call, task, CLASSES, source, out, **settings)


@pytest.fixture
def images(tmp_path):
    """Images of two sizes in a folder with another one in it, by their names."""
    random, found = np.random.default_rng(0), {}
    for i, size in product(range(5), SIZES):
        image = random.integers(0, 256, (*size, 3), np.uint8)
        name = f'{"sub/" * (i % 2)}{i}_{size[0]}.png'
        path = tmp_path / 'images' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image[..., ::-1])
        found[name] = image
    return found


def names_in(folder):
    paths = (p for p in folder.rglob('*') if p.is_file())
    return {str(p.relative_to(folder)) for p in paths}


def test_masks_and_depths(images, tmp_path):
    source, reports = tmp_path / 'images', []
    done = predict(
        'segmentation', source, tmp_path / 'a', report=lambda *n: reports.append(n)
    )
    assert done == (10, 0, {})
    assert reports == [(n, 10) for n in (0, 2, 4, 6, 8, 10)]
    assert names_in(tmp_path / 'a') == {*images}
    predict('depth', source, tmp_path / 'b')
    for name, image in images.items():
        mask = cv2.imread(str(tmp_path / 'a' / name), cv2.IMREAD_UNCHANGED)
        assert_array_equal(mask, mask_of(image))
        depth = cv2.imread(str(tmp_path / 'b' / name), cv2.IMREAD_UNCHANGED)
        assert depth.dtype == np.uint16
        wanted = np.minimum(np.round(image[..., 0] * 400.4), 65535)
        assert abs(depth - wanted).max() <= 1
        assert depth.max() == 65535
    # A second run predicts nothing.
    assert predict('segmentation', source, tmp_path / 'a') == (0, 10, {})


def read_coco(path):
    found = json.loads(path.read_text())
    assert found['categories'] == [
        dict(id=i, name=name) for i, name in enumerate(CLASSES, start=1)
    ]
    return {i['id']: i for i in found['images']}, found['annotations']


def test_boxes_are_in_the_format_of_coco(images, tmp_path):
    predict('detection', tmp_path / 'images', tmp_path / 'out')
    assert names_in(tmp_path / 'out') == {
        'predictions.json', '.predict/predictions.jsonl'
    }  # fmt: skip
    about, annotations = read_coco(tmp_path / 'out/predictions.json')
    assert [about[i]['file_name'] for i in sorted(about)] == sorted(images)
    for i, image in about.items():
        pixels = images[image['file_name']]
        wanted, own = objects_of(pixels), [a for a in annotations if a['image_id'] == i]
        assert (image['height'], image['width']) == pixels.shape[:2]
        assert len(own) == len(wanted.boxes)
        for k, found in enumerate(own):
            left, top, right, bottom = wanted.boxes[k].tolist()
            assert found['bbox'] == [left, top, right - left, bottom - top]
            assert found['category_id'] == wanted.labels[k] + 1
            assert found['score'] == pytest.approx(wanted.scores[k])
            assert found['area'] == wanted.masks[k].sum()
            runs = found['segmentation']  # column by column
            values = np.arange(len(runs['counts'])) % 2 == 1
            mask = np.repeat(values, runs['counts']).reshape(runs['size'], order='F')
            assert_array_equal(mask, wanted.masks[k])
    assert len({a['id'] for a in annotations}) == len(annotations) > 5


def test_classes(images, tmp_path):
    predict('classification', tmp_path / 'images', tmp_path / 'out')
    rows = list(csv.DictReader((tmp_path / 'out/predictions.csv').open()))
    assert [row['image'] for row in rows] == sorted(images)
    for row in rows:
        label = int(images[row['image']][0, 0, 0]) % 3
        wanted = dict(label=str(label), score='0.6') | {'class': CLASSES[label]}
        assert row == wanted | dict(image=row['image'])


@pytest.mark.parametrize('task', ['segmentation', 'detection'])
def test_kills_lose_nothing_and_nothing_is_written_twice(images, tmp_path, task):
    """Killed before a mask gets its name, or before lines of a batch are written."""
    source, out, written = tmp_path / 'images', tmp_path / 'out', {}
    log = out / '.predict/predictions.jsonl'

    def outputs():
        if task == 'segmentation':
            paths = (p for p in out.rglob('*') if '.predict' not in p.parts)
            return {p.name: p.stat().st_mtime_ns for p in paths if p.is_file()}
        lines = log.read_text().splitlines(keepends=True) if log.exists() else ()
        return {json.loads(x)['image']: x for x in lines if x.endswith('\n')}

    number, event = dict(segmentation=(3, 'os.rename'), detection=(2, 'open'))[task]
    for times in (1, 2):
        run = fork(lambda: predict(task, source, out), out, number, event)
        assert wait(run)
        now = outputs()
        assert len(now) == 2 * times == count_done(task, source, out)
        assert written.items() <= now.items()
        written = now
        if task == 'detection':  # as if killed within a line
            with log.open('a') as file:
                file.write('{"image": "0_')
    assert predict(task, source, out) == (6, 4, {})
    assert written.items() <= outputs().items()
    whole = tmp_path / 'whole'
    predict(task, source, whole)
    logs = {'.predict/predictions.jsonl'}
    assert names_in(out) - logs == names_in(whole) - logs
    for name in names_in(whole) - logs:
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_shards_are_disjoint_and_complete(images, tmp_path):
    source, out = tmp_path / 'images', tmp_path / 'out'
    parts, ids = [], []
    for i in (1, 2, 3):
        done = predict('detection', source, out, shard=(i, 3))
        assert done == (4 - (i > 1), 0, {})
        about, annotations = read_coco(out / f'predictions_{i}of3.json')
        parts.append({image['file_name'] for image in about.values()})
        ids += [*about, *(a['id'] for a in annotations)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(images)
    assert len({*ids}) == len(ids)
    # Without shards, the whole is written from what is there.
    assert predict('detection', source, out) == (0, 10, {})
    about, annotations = read_coco(out / 'predictions.json')
    assert {*about, *(a['id'] for a in annotations)} == {*ids}
    with pytest.raises(ValueError, match="shard='4/3'; allowed: 1/n to n/n"):
        predict('detection', source, out, shard=(4, 3))


def test_broken_images_are_listed(images, tmp_path):
    source, out = tmp_path / 'images', tmp_path / 'out'
    path = source / 'sub/torn.jpg'
    Image.fromarray(np.zeros((90, 90, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    (source / 'text.png').write_text('no image')
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(source / 'deep.png')
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(source / 'small.png')

    def call(found):
        for image in found:
            if len(image) == 2:
                raise ValueError('image=(2, 2); allowed: larger ones')
        return [mask_of(image) for image in found]

    settings = dict(source=source, out=out, batch_size=4)
    done = predict_folder(call, 'segmentation', CLASSES, **settings)
    assert done[:2] == (10, 0)
    listed = (out / 'unreadable.txt').read_text().splitlines()
    listed = dict(line.split('\t') for line in listed)
    assert listed == done.unreadable
    for name, words in {
        'sub/torn.jpg': 'OSError: ',
        'text.png': 'UnidentifiedImageError: cannot identify',
        'deep.png': 'ValueError: mode I;16; allowed: 8 bits',
        'small.png': 'ValueError: image=(2, 2); allowed: larger ones',
    }.items():
        assert listed.pop(name).startswith(words)
    assert listed == {}
    assert names_in(out) == {*images, 'unreadable.txt'}
    # Mended, they are predicted, and the list goes.
    for name in done.unreadable:
        (source / name).unlink()
    assert predict_folder(call, 'segmentation', CLASSES, **settings) == (0, 10, {})
    assert names_in(out) == {*images}


def test_lists_and_names(images, tmp_path):
    """Paths are relative to the list; outputs keep apart what has equal stems."""
    source, out = tmp_path / 'images', tmp_path / 'images/out'
    Image.fromarray(images['0_8.png']).save(source / '0_8.bmp')
    out.mkdir()
    Image.fromarray(images['0_8.png']).save(out / '0_8.png')
    listed = list_images(source, out)
    assert {image.name for image in listed} == {*images, '0_8.bmp'}
    stems = {image.stem for image in listed if image.name.startswith('0_')}
    assert stems == {'0_8.bmp', '0_8.png', '0_5'}
    text = tmp_path / 'list.txt'
    text.write_text(f'images/0_5.png\n\n{source}/sub/1_8.png\nimages/0_5.png\n')
    assert list_images(text, out) == [
        (source / '0_5.png', '0_5.png', '0_5'),
        (source / 'sub/1_8.png', 'sub/1_8.png', 'sub/1_8'),
    ]
    for wrong in (source / '0_5.png', tmp_path / 'none', tmp_path / 'empty'):
        (tmp_path / 'empty').mkdir(exist_ok=True)
        with pytest.raises(ValueError, match='allowed: folders with images, or text'):
            list_images(wrong, out)
    with pytest.raises(ValueError, match='out=.*; allowed: another folder'):
        list_images(source, source)


def test_images_are_read_as_by_opencv(tmp_path):
    """JPEG, turned by its EXIF data, and grey, with a palette or transparent."""
    pixels = cv2.resize(np.random.default_rng(0).random((4, 5, 3)), (50, 40))
    image, exif = Image.fromarray((255 * pixels).astype(np.uint8)), Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / 'turned.jpg', exif=exif)
    for mode in ('L', 'P', 'RGBA', 'RGB'):
        image.convert(mode).save(tmp_path / f'{mode}.png')
    for path in tmp_path.iterdir():
        wanted = cv2.imread(str(path))[..., ::-1]
        assert_array_equal(read_image(path), wanted)
        assert read_image(path).dtype == np.uint8


def test_a_deadline_is_used_up_and_held():
    """Stitches of 1, 2 and 4 s, 100 images, 350 s; the last 40 take twice as long."""
    now, ran = [0.0], []
    deadline = Deadline(350, dict(a=1, b=2, c=4), ran.append, clock=lambda: now[0])
    assert ran == ['a']
    for left in range(98, -1, -2):
        slow = 2 if left < 40 else 1
        elapsed = 2 * slow * deadline.costs[deadline.stitch]
        now[0] += elapsed
        deadline.update(elapsed, 2, left)
    assert 0.85 * 350 < now[0] <= 350
    assert {*ran} == {'a', 'b', 'c'}
    # Too late, the cheapest one runs.
    now[0] = 351
    deadline.update(4, 1, 5)
    assert deadline.stitch == 'a'


@pytest.mark.parametrize('text', ['', '8', 'h', '-1h', '0s', 'nanh', '1d'])
def test_durations(text):
    assert [parse_duration(t) for t in ('8h', '1.5m', '90s')] == [28800, 90, 90]
    with pytest.raises(ValueError, match='deadline=.*allowed: positive durations'):
        parse_duration(text)


def test_a_deadline_switches_between_batches(images, tmp_path):
    ran = []
    deadline = Deadline(1e6, dict(a=1, b=2), ran.append)
    predict('depth', tmp_path / 'images', tmp_path / 'out', deadline=deadline)
    assert ran == ['a', 'b']
    assert len(names_in(tmp_path / 'out')) == 10
