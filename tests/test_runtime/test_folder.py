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

from snnet_mm.runtime import Deadline, Detections, Folder, predict_folder

CLASSES = 'a', 'b', 'c'
SIZES = (8, 6), (5, 9)


def mask_of(image):
    return image[..., 0].astype(np.int64) % 7


def objects_of(image):
    """None, one or two boxes."""
    number = int(image[0, 0, 0]) % 3
    boxes = np.tile(np.float32([1, 0, image.shape[1], 4]), (number, 1))
    return Detections(boxes, np.linspace(0.9, 0.5, number), np.arange(number), None)


def probabilities_of(image):
    return np.eye(3)[int(image[0, 0, 0]) % 3] * 0.5 + 0.1


CALLS = dict(
    segmentation=mask_of, detection=objects_of, classification=probabilities_of
)


def predict(task, source, out, **settings):
    def call(images):
        return [CALLS[task](image) for image in images]

    return predict_folder(call, Folder(source, out, task, CLASSES), 2, **settings)


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


def test_predict_folder_masks(images, tmp_path):
    source, out, reports = tmp_path / 'images', tmp_path / 'out', []
    done = predict('segmentation', source, out, report=lambda *n: reports.append(n))
    assert done == (10, 0, {})
    assert reports == [(n, 10) for n in (0, 2, 4, 6, 8, 10)]
    assert names_in(out) == {*images}
    for name, image in images.items():
        mask = cv2.imread(str(out / name), cv2.IMREAD_UNCHANGED)
        assert_array_equal(mask, mask_of(image))
    # A second run predicts nothing.
    assert predict('segmentation', source, out) == (0, 10, {})


def test_predict_folder_objects_as_coco(images, tmp_path):
    predict('detection', tmp_path / 'images', tmp_path / 'out')
    kept = {f'.predict/{name[:-4]}.json' for name in images}
    assert names_in(tmp_path / 'out') == {'predictions.json', *kept}
    written = json.loads((tmp_path / 'out/predictions.json').read_text())
    annotations, categories = written['annotations'], written['categories']
    assert categories == [dict(id=i, name=n) for i, n in enumerate(CLASSES, 1)]
    assert [image['file_name'] for image in written['images']] == sorted(images)
    for image in written['images']:
        pixels = images[image['file_name']]
        own = [a for a in annotations if a['image_id'] == image['id']]
        wanted = objects_of(pixels)
        assert (image['height'], image['width']) == pixels.shape[:2]
        assert [a['category_id'] for a in own] == (wanted.labels + 1).tolist()
        assert [a['score'] for a in own] == pytest.approx(wanted.scores)
        assert all(a['bbox'] == [1, 0, image['width'] - 1, 4] for a in own)
    assert len({a['id'] for a in annotations}) == len(annotations) > 5


def test_predict_folder_classes_as_csv(images, tmp_path):
    predict('classification', tmp_path / 'images', tmp_path / 'out')
    rows = list(csv.DictReader((tmp_path / 'out/predictions.csv').open()))
    assert [row['image'] for row in rows] == sorted(images)
    for row in rows:
        label = int(images[row['image']][0, 0, 0]) % 3
        wanted = dict(label=str(label), score='0.6') | {'class': CLASSES[label]}
        assert row == wanted | dict(image=row['image'])


@pytest.mark.parametrize('task', ['segmentation', 'detection'])
def test_predict_folder_killed_loses_nothing_and_repeats_nothing(
    images, tmp_path, task
):
    """Killed twice, each time before the fifth file gets its name."""
    source, out, written = tmp_path / 'images', tmp_path / 'out', {}
    suffix = dict(segmentation='.png', detection='.json')[task]

    def outputs():
        paths = (p for p in out.rglob(f'*{suffix}') if p.name != 'predictions.json')
        return {str(p): p.stat().st_mtime_ns for p in paths}

    for times in (1, 2):
        assert wait(fork(lambda: predict(task, source, out), out, 5, 'os.rename'))
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

    def call(found):
        for image in found:
            if len(image) == 2:
                raise ValueError('image=(2, 2) is invalid')
        return [mask_of(image) for image in found]

    done = predict_folder(call, Folder(source, out, 'segmentation'), 4)
    assert done[:2] == (10, 0)
    listed = (out / 'unreadable.txt').read_text().splitlines()
    listed = dict(line.split('\t') for line in listed)
    assert listed == done.unreadable
    for name, words in {
        'sub/torn.jpg': 'OSError: ',
        'text.png': 'UnidentifiedImageError: cannot identify',
        'deep.png': 'ValueError: mode I;16; expected 8 bits',
        'small.png': 'ValueError: image=(2, 2) is invalid',
    }.items():
        assert listed.pop(name).startswith(words)
    assert listed == {}
    assert names_in(out) == {*images, 'unreadable.txt'}
    # Mended, they are predicted, and the list goes.
    for name in done.unreadable:
        (source / name).unlink()
    again = Folder(source, out, 'segmentation')
    assert predict_folder(call, again) == (0, 10, {})
    assert names_in(out) == {*images}


class Runtime:
    """Stands in for a bundle of stitches that take 1, 2 and 4 s."""

    def __init__(self):
        self.ran = []

    def front(self):
        return {('fp32', 0): 1000.0, ('fp32', 1): 2000.0, ('int8', 2): 4000.0}

    def set_stitch(self, stitch, precision):
        self.ran.append((precision, stitch))


def test_deadline_is_used_up_and_kept(monkeypatch):
    """100 images, 350 s; the last 40 take twice as long."""
    now, runtime = [0.0], Runtime()
    monkeypatch.setattr('time.monotonic', lambda: now[0])
    deadline = Deadline(runtime, 350)
    for left in range(100, 0, -2):
        deadline.begin(left)
        slow = 2 if left <= 40 else 1
        now[0] += 2 * slow * runtime.front()[runtime.ran[-1]] / 1000
        deadline.end(2)
    assert 0.85 * 350 < now[0] <= 350
    assert {*runtime.ran} == {*runtime.front()}
    # Too late, the fastest one runs.
    now[0] = 351
    deadline.begin(5)
    assert runtime.ran[-1] == ('fp32', 0)


def test_predict_folder_deadline_switches_between_batches(images, tmp_path):
    runtime = Runtime()
    deadline = Deadline(runtime, 1e6)
    predict('segmentation', tmp_path / 'images', tmp_path / 'out', deadline=deadline)
    assert runtime.ran == [('int8', 2)] * 5
