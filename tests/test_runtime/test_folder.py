"""Folders of images as files, killed and continued."""

import csv
import json
import os
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from killing import fork, wait
from numpy.testing import assert_array_equal
from PIL import Image

from snnet_mm.runtime import Deadline, Detections, Folder, predict_folder
from snnet_mm.runtime.image_io import RECORD

CLASSES = 'a', 'b', 'c'


def objects_of(image):
    """None, one or two boxes."""
    number = int(image[0, 0, 0]) % 3
    boxes = np.tile(np.float32([1, 0, image.shape[1], 4]), (number, 1))
    return Detections(boxes, np.linspace(0.9, 0.5, number), np.arange(number), None)


CALLS = dict(
    segmentation=lambda image: image[..., 0].astype(np.int64) % 7,
    detection=objects_of,
    classification=lambda image: np.eye(3)[int(image[0, 0, 0]) % 3] * 0.5 + 0.1,
)


def predict(task, source, out, request=None, force=False, **settings):
    def call(images):
        if min(len(image) for image in images) == 2:
            raise ValueError('image=(2, 2) is invalid')
        return [CALLS[task](image) for image in images]

    folder = Folder(source, out, task, CLASSES, request=request, force=force)
    skipped = predict_folder(call, folder, 2, **settings)
    left = len(folder.left)
    return left - len(skipped), len(folder.images) - left, skipped


@pytest.fixture
def images(tmp_path):
    """Ten images of two sizes in a folder with another one in it, by their names."""
    random, found = np.random.default_rng(0), {}
    (tmp_path / 'images/sub').mkdir(parents=True)
    for i in range(10):
        size = ((8, 6), (5, 9))[i % 2]
        name = f'{"sub/" * (i > 6)}{i}.png'
        found[name] = random.integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(found[name]).save(tmp_path / 'images' / name)
    return found


def names_in(folder):
    """Names of all files but the record."""
    found = {str(p.relative_to(folder)) for p in folder.rglob('*') if p.is_file()}
    assert RECORD in found
    return found - {RECORD}


def contents(folder):
    """Bytes of all files by name."""
    return {name: (folder / name).read_bytes() for name in names_in(folder)}


def test_predict_folder_masks(images, tmp_path):
    source, out, reports = tmp_path / 'images', tmp_path / 'out', []
    done = predict('segmentation', source, out, before=reports.append)
    assert done == (10, 0, {})
    assert reports == [10, 8, 6, 4, 2]
    assert names_in(out) == {*images}
    for name, image in images.items():
        mask = cv2.imread(str(out / name), cv2.IMREAD_UNCHANGED)
        assert_array_equal(mask, CALLS['segmentation'](image))


def test_predict_folder_objects_as_coco(images, tmp_path):
    predict('detection', tmp_path / 'images', tmp_path / 'out')
    kept = {f'.predict/{name[:-4]}.json' for name in images}
    assert names_in(tmp_path / 'out') == {'predictions.json', *kept}
    named = [dict(id=i, name=name) for i, name in enumerate(CLASSES, 1)]
    wanted = dict(annotations=[], images=[], categories=named)
    for i, (name, image) in enumerate(sorted(images.items()), 1):
        height, width = image.shape[:2]
        about = dict(id=i, file_name=name, height=height, width=width)
        wanted['images'].append(about)
        for label, score in enumerate(objects_of(image).scores):
            number, box = len(wanted['annotations']) + 1, [1, 0, width - 1, 4]
            about = dict(id=number, image_id=i, category_id=label + 1, bbox=box)
            about |= dict(iscrowd=0, score=score, area=4 * (width - 1))
            wanted['annotations'].append(about)
    assert json.loads((tmp_path / 'out/predictions.json').read_text()) == wanted


def test_predict_folder_classes_as_csv(images, tmp_path):
    predict('classification', tmp_path / 'images', tmp_path / 'out')
    rows = list(csv.reader((tmp_path / 'out/predictions.csv').open()))
    labels = {name: int(image[0, 0, 0]) % 3 for name, image in images.items()}
    found = [[n, str(i), CLASSES[i], '0.6'] for n, i in sorted(labels.items())]
    assert rows == [['image', 'label', 'class', 'score'], *found]


@pytest.mark.parametrize(
    ('task', 'suffix'), [('segmentation', '.png'), ('detection', '.json')]
)
def test_predict_folder_killed_loses_and_repeats_nothing(
    images, tmp_path, task, suffix
):
    """Killed twice, each time before the fifth file after the record gets its name."""
    source, out, written = tmp_path / 'images', tmp_path / 'out', {}

    def outputs():
        joint = 'predictions.json', RECORD
        paths = (p for p in out.rglob(f'*{suffix}') if p.name not in joint)
        return {str(p): p.stat().st_mtime_ns for p in paths}

    for times in (1, 2):
        assert wait(fork(lambda: predict(task, source, out), out, 6, 'os.rename'))
        now = outputs()
        assert len(now) == 4 * times == 10 - len(Folder(source, out, task).left)
        assert written.items() <= now.items()
        written = now
    assert predict(task, source, out) == (2, 8, {})
    assert written.items() <= outputs().items()
    whole = tmp_path / 'whole'
    predict(task, source, whole)
    assert names_in(whole) <= names_in(out)
    for name in names_in(whole):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_predict_folder_lists_broken_images(images, tmp_path):
    source, out = tmp_path / 'images', tmp_path / 'out'
    path = source / 'sub/torn.jpg'
    Image.fromarray(np.zeros((90, 90, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    (source / 'text.png').write_text('no image')
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(source / 'deep.png')
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(source / 'small.png')
    *numbers, skipped = predict('segmentation', source, out)
    assert numbers == [10, 0]
    listed = (out / 'unreadable.txt').read_text().splitlines()
    assert dict(line.split('\t') for line in listed) == skipped
    formats = 'BMP, JPEG, PNG, PPM, TIFF, WEBP'
    assert skipped == {
        'deep.png': 'mode I;16; expected 8 bits per channel',
        'small.png': 'image=(2, 2) is invalid',
        'sub/torn.jpg': 'Truncated File Read',
        'text.png': f'the format is unknown; expected one of {formats}',
    }
    assert names_in(out) == {*images, 'unreadable.txt'}
    # Without them, the list goes.
    for name in skipped:
        (source / name).unlink()
    assert predict('segmentation', source, out) == (0, 10, {})
    assert names_in(out) == {*images}


@pytest.mark.parametrize('task', CALLS)
def test_predict_folder_of_another_request_is_refused(images, tmp_path, task):
    """Unless forced; its files stay, and those of other images are never taken over."""
    source, out = tmp_path / 'images', tmp_path / 'out'
    first, second = (dict(bundle='b', stitch=i, precision='fp32') for i in (0, 3))
    assert predict(task, source, out, first) == (10, 0, {})
    before = contents(out)
    with pytest.raises(ValueError, match=r'--force .* --out\)'):
        predict(task, source, out, second)
    with pytest.raises(ValueError, match="not with bundle='b', stitch=0, precision="):
        predict(task, source, out)
    assert contents(out) == before
    assert predict(task, source, out, first) == (0, 10, {})
    part = tmp_path / 'part.txt'
    part.write_text(''.join(f'images/{name}\n' for name in [*images][5:]))
    assert predict(task, part, out, second, True) == (5, 0, {})
    assert predict(task, part, out, second) == (0, 5, {})
    with pytest.raises(ValueError, match='files of other origin'):
        predict(task, source, out, second)
    assert predict(task, source, out, second, True) == (10, 0, {})
    # A part that is predicted again leaves the others valid.
    assert predict(task, part, out, second, True) == (5, 0, {})
    assert predict(task, source, out, second) == (0, 10, {})


@pytest.mark.parametrize('task', CALLS)
def test_predict_folder_predicts_changed_images_again(images, tmp_path, task):
    """Also if the new file is older, as large, or no image."""
    source, out = tmp_path / 'images', tmp_path / 'out'
    predict(task, source, out)
    changed = [source / f'{i}.png' for i in range(3)]
    Image.fromarray(255 - images['0.png']).save(changed[0])
    os.utime(changed[0], (1e9, 1e9))
    changed[1].write_bytes(changed[1].read_bytes())
    changed[2].write_text('no image')
    assert predict(task, source, out)[:2] == (2, 7)
    anew = tmp_path / 'anew'
    assert predict(task, source, anew)[:2] == (9, 0)
    assert contents(out) == contents(anew)


@pytest.mark.parametrize(
    ('task', 'name'),
    [
        ('segmentation', 'sub/8.png'),
        ('classification', 'predictions.csv'),
        ('detection', 'predictions.json'),
    ],
)
def test_predict_folder_overwrites_no_files_of_others(images, tmp_path, task, name):
    """Such as the labels of the images."""
    path = tmp_path / 'out' / name
    path.parent.mkdir(parents=True)
    path.write_text('labels')
    with pytest.raises(ValueError, match=f'with {path.name}.*files of other origin'):
        predict(task, tmp_path / 'images', tmp_path / 'out')
    assert path.read_text() == 'labels'
    assert predict(task, tmp_path / 'images', tmp_path / 'out', force=True)[0] == 10
    assert path.read_text('latin1') != 'labels'


def test_predict_folder_never_reads_predictions(images, tmp_path):
    """Of other runs either."""
    source = tmp_path / 'images'
    for i, out in enumerate(('masks', 'sub/masks', 'sub/deep/masks')):
        assert predict('segmentation', source, source / out, dict(stitch=i))[0] == 10
    assert len(Folder(source / 'sub', tmp_path / 'out', 'depth').images) == 3
    with pytest.raises(ValueError, match='images other than predictions'):
        Folder(source / 'masks', tmp_path / 'out', 'depth')


def test_deadline_is_used_up_and_kept(monkeypatch):
    """100 images, 350 s; the last 40 take twice as long."""
    front, ran, now = {('fp32', 0): 1e3, ('fp32', 1): 2e3, ('int8', 2): 4e3}, [], [0.0]
    runtime = SimpleNamespace(front=lambda: front)
    runtime.set_stitch = lambda stitch, precision: ran.append((precision, stitch))
    monkeypatch.setattr('time.monotonic', lambda: now[0])
    deadline = Deadline(runtime, 350)
    for left in range(100, 0, -2):
        deadline.choose(left)
        slow = 2 if left <= 40 else 1
        now[0] += 2 * slow * front[ran[-1]] / 1000
    assert 0.85 * 350 < now[0] <= 350
    assert {*ran} == {*front}
    # Too late, the fastest one runs.
    now[0] = 351
    deadline.choose(1)
    assert ran[-1] == ('fp32', 0)
