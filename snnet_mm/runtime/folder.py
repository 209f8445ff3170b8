"""Prediction of a folder of images to files, resumable after an interruption."""

import csv
import json
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .budgets import best_within
from .checks import check, is_number, is_whole
from .detection import Detections, Panoptic

SUFFIXES = '.bmp', '.jpeg', '.jpg', '.png', '.ppm', '.tif', '.tiff', '.webp'
STATE = '.predict'  # prefix of the folders that contain a shard's state
LOG = 'predictions.jsonl'
MOST_OBJECTS = 10**5  # per image, the range reserved for annotation ids
MARGIN = 0.95  # fraction of the remaining time that is planned for
RECENT = 5  # batches whose median time per image is extrapolated


class ImageFile(NamedTuple):
    """An image, its path relative to the folder, and the stem of its outputs."""

    path: Path
    name: str
    stem: str


class Summary(NamedTuple):
    """Counts of images predicted now and before, and why others were skipped."""

    predicted: int
    before: int
    unreadable: dict[str, str]


class Deadline:
    """Selects, after every batch, the best stitch fast enough for the remaining images.

    The cheapest stitch runs first. Others are expected to take the measured time per
    image, scaled by the ratio of costs. After the deadline, the cheapest stitch runs.

    Args:
        seconds: Time for all images, counted from the construction.
        costs: Cost of every stitch on the Pareto front, ascending.
        switch: Called with the stitch to run next.
    """

    def __init__(
        self,
        seconds: float,
        costs: Mapping[Any, float],
        switch: Callable[[Any], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check(is_number(seconds) and seconds > 0, '--deadline', seconds, 'above 0 s')
        self.costs, self._switch, self._clock = dict(costs), switch, clock
        self._end, self._seconds = clock() + seconds, deque(maxlen=RECENT)
        self.stitch = next(iter(self.costs))
        switch(self.stitch)

    def update(self, elapsed: float, number: int, left: int) -> None:
        """Record the seconds of ``number`` images; choose for the ``left`` others."""
        self._seconds.append(elapsed / number)
        per_cost = median(self._seconds) / self.costs[self.stitch]
        seconds = MARGIN * (self._end - self._clock()) / max(left, 1)
        stitch = best_within(self.costs, seconds / per_cost)
        stitch = next(iter(self.costs)) if stitch is None else stitch
        if stitch != self.stitch:
            self.stitch = stitch
            self._seconds.clear()
            self._switch(stitch)


def parse_duration(text: str) -> float:
    """Parse the seconds of a duration such as ``'8h'``, ``'30m'`` or ``'90s'``."""
    number, factor = text[:-1], dict(h=3600, m=60, s=1).get(text[-1:])
    right = factor and number.replace('.', '', 1).isdecimal() and float(number) > 0
    check(right, '--deadline', text, "positive durations such as '8h', '30m', '90s'")
    return float(number) * factor


def list_images(source: str | os.PathLike, out: str | os.PathLike) -> list[ImageFile]:
    """List the images in a text file, or below a folder except those in ``out``.

    The text file contains one path per line, relative to the folder of the file.
    """
    source, out = Path(source), Path(out).resolve()
    is_list = source.is_file() and source.suffix.lower() not in SUFFIXES
    allowed = 'folders with images, or text files with one path per line'
    check(is_list or source.is_dir(), 'source', str(source), allowed)
    if is_list:
        lines = source.read_text(encoding='utf-8').splitlines()
        paths = {Path(os.path.abspath(source.parent / line)) for line in lines if line}
        root = os.path.commonpath([p.parent for p in paths]) if paths else ''
    else:
        root, here = source.resolve(), source.resolve().rglob('*')
        paths = {p for p in here if p.suffix.lower() in SUFFIXES and p.name[0] != '.'}
        check(out != root, '--out', str(out), 'another folder than the images')
        paths = {p for p in paths if out not in p.parents}
    check(paths, 'source', str(source), allowed)
    names = [path.relative_to(root) for path in sorted(paths)]
    number = Counter(name.with_suffix('') for name in names)
    return [
        ImageFile(Path(root, name), name.as_posix(), stem.as_posix())
        for name in names
        for stem in [
            name.with_suffix('') if number[name.with_suffix('')] == 1 else name
        ]
    ]


def read_image(path: Path | BinaryIO, channels: int = 3) -> np.ndarray:
    """Read an image as uint8 RGB ``(H, W, 3)``, oriented by its EXIF data.

    With one channel it is grey ``(H, W, 1)``, with four BGRA ``(H, W, 4)``, as mm loads
    images unchanged.
    """
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        if image.mode[0] in 'IF':
            raise ValueError(f'mode {image.mode}; allowed: 8 bits per channel')
        image = ImageOps.exif_transpose(image)
        if channels == 4:
            if image.mode != 'RGBA':
                raise ValueError(f'mode {image.mode}; allowed: RGBA')
            return np.asarray(image)[..., [2, 1, 0, 3]]
        pixels = np.asarray(image.convert('RGB' if channels == 3 else 'L'))
        return pixels.reshape(*pixels.shape[:2], channels)


def predict_folder(
    predict: Callable[[list[np.ndarray]], Sequence],
    task: str,
    classes: Sequence[str],
    source: str | os.PathLike,
    out: str | os.PathLike,
    batch_size: int = 8,
    shard: tuple[int, int] = (1, 1),
    deadline: Deadline | None = None,
    report: Callable[[int, int], object] = lambda done, total: None,
    channels: int = 3,
) -> Summary:
    """Predict all images that have no prediction in ``out`` yet.

    Masks are written as PNG files of class indices (16-bit above 255, else 8-bit),
    depths as 16-bit PNG files in millimetres. Boxes are written to ``predictions.json``
    in COCO format, classes to ``predictions.csv``. All files are written atomically.
    Images that cannot be read or predicted are listed in ``unreadable.txt``.

    Args:
        predict: Predicts a list of images, like :meth:`StitchRuntime.predict_batch`.
        task: Task of the manifest.
        classes: Names of the classes.
        source: See :func:`list_images`.
        out: Output folder, shared by all shards.
        batch_size: Images per call.
        shard: ``(i, n)`` for every n-th image starting at the i-th, counted from 1.
        deadline: Switches stitches between batches.
        channels: Channels of the images: 1, 3 or 4. Default: 3.
        report: Called with the finished and the total number of images of the shard.
    """
    index, number = shard
    right = is_whole(number, 1) and is_whole(index, 1) and index <= number
    check(right, '--shard', f'{index}/{number}', '1/n to n/n')
    check(is_whole(batch_size, 1), '--batch-size', batch_size, 'whole numbers from 1')
    wanted = '1, 3 or 4 of image files; StitchRuntime and sn.predict take any arrays'
    check(channels in (1, 3, 4), 'in_channels', channels, wanted)
    images = list_images(source, out)
    suffix = f'_{index}of{number}' if number > 1 else ''
    store = _store(task, out, suffix)
    own = dict(enumerate(images[index - 1 :: number]))
    left = [image for image in own.values() if not store.has(image)]
    before, unreadable = len(own) - len(left), {}
    batches = [left[i : i + batch_size] for i in range(0, len(left), batch_size)]
    begin, done = time.perf_counter(), before
    report(done, len(own))
    with ThreadPoolExecutor(1) as reader:  # reads the next batch meanwhile
        reading = [reader.submit(_read, batch, channels) for batch in batches[:1]]
        for n, batch in enumerate(batches, start=1):
            pixels = reading.pop().result()
            later = batches[n : n + 1]
            reading = [reader.submit(_read, batch, channels) for batch in later]
            found, rows = _predict(predict, pixels), []
            for image, read, result in zip(batch, pixels, found, strict=True):
                if isinstance(result, Exception):
                    words = f'{type(result).__name__}: {result}'
                    unreadable[image.name] = ' '.join(words.split())
                    continue
                if isinstance(result, Panoptic):
                    result = result.as_detections(len(classes))
                rows.append((image, read.shape[:2], result))
            store.add(rows)
            elapsed, begin = time.perf_counter() - begin, time.perf_counter()
            done += len(batch)
            report(done, len(own))
            if deadline is not None and rows:
                deadline.update(elapsed, len(rows), len(own) - done)
    listed = Path(out, f'unreadable{suffix}.txt')
    listed.unlink(missing_ok=True)
    if unreadable:
        lines = [f'{name}\t{why}\n' for name, why in unreadable.items()]
        store.write(listed, lambda path: path.write_text(''.join(lines)))
    ids = {image.name: index + number * i for i, image in own.items()}
    store.finish(ids, task, classes)
    return Summary(len(left) - len(unreadable), before, unreadable)


def count_done(task: str, source: str | os.PathLike, out: str | os.PathLike) -> int:
    """Return the number of images that have a prediction."""
    store = _store(task, out, '')
    return sum(store.has(image) for image in list_images(source, out))


def _store(task: str, out: str | os.PathLike, suffix: str) -> '_Maps':
    return (_Maps if task in ('segmentation', 'depth') else _Records)(out, suffix)


def _read(images: Sequence[ImageFile], channels: int) -> list[np.ndarray | Exception]:
    def attempt(path: Path) -> np.ndarray | Exception:
        try:
            return read_image(path, channels)
        except Exception as error:  # decoders raise arbitrary exceptions
            return error

    return [attempt(image.path) for image in images]


def _predict(predict: Callable, pixels: Sequence[np.ndarray | Exception]) -> list:
    """Predict the images that were read; return errors for those that fail."""
    found = list(pixels)
    good = [i for i, image in enumerate(found) if isinstance(image, np.ndarray)]
    try:
        predicted = predict([found[i] for i in good]) if good else []
    except ValueError as error:
        if len(good) == 1:
            predicted = [error]
        else:
            predicted = [_predict(predict, [found[i]])[0] for i in good]
    for i, prediction in zip(good, predicted, strict=True):
        found[i] = prediction
    return found


class _Maps:
    """Store with one PNG file per image."""

    def __init__(self, out: str | os.PathLike, suffix: str) -> None:
        self.out, self.suffix = Path(out), suffix
        self.state = self.out / f'{STATE}{suffix}'
        self.state.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, save: Callable[[Path], object]) -> None:
        """Write a file atomically."""
        temporary = self.state / f'unfinished{path.suffix}'
        save(temporary)
        with temporary.open('rb') as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def has(self, image: ImageFile) -> bool:
        return self._path(image).exists()

    def add(self, rows: Collection[tuple[ImageFile, tuple, np.ndarray]]) -> None:
        from PIL import Image

        for image, _, found in rows:
            path = self._path(image)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.write(path, Image.fromarray(to_pixels(found)).save)

    def finish(self, *_: object) -> None:
        shutil.rmtree(self.state)

    def _path(self, image: ImageFile) -> Path:
        return self.out / f'{image.stem}.png'


class _Records(_Maps):
    """Store with one log line per image, converted to a single file at the end."""

    def __init__(self, out: str | os.PathLike, suffix: str) -> None:
        super().__init__(out, suffix)
        self.log = self.state / LOG
        self._names = {record['image'] for record in self._read()}
        if self.log.exists():  # a killed run may leave the last line unfinished
            whole = self.log.read_bytes().rfind(b'\n') + 1
            os.truncate(self.log, whole)

    def has(self, image: ImageFile) -> bool:
        return image.name in self._names

    def add(self, rows: Collection[tuple[ImageFile, tuple, Any]]) -> None:
        with self.log.open('a', encoding='utf-8') as file:
            for image, size, found in rows:
                about = dict(image=image.name, height=size[0], width=size[1])
                file.write(json.dumps(about | describe(found)) + '\n')
            file.flush()
            os.fsync(file.fileno())

    def finish(self, ids: Mapping[str, int], task: str, classes: Sequence[str]) -> None:
        kind = 'csv' if task == 'classification' else 'json'
        path = self.out / f'predictions{self.suffix}.{kind}'
        save = self._csv if kind == 'csv' else self._coco
        self.write(path, lambda temporary: save(temporary, ids, classes))

    def _read(self, names: Collection[str] | None = None) -> Iterator[dict]:
        """Yield records of all shards, optionally only of the named images."""
        for log in sorted(self.out.glob(f'{STATE}*/{LOG}')):
            with log.open(encoding='utf-8') as file:
                for record in (json.loads(x) for x in file if x.endswith('\n')):
                    if names is None or record['image'] in names:
                        yield record

    def _csv(self, path: Path, ids: Mapping, classes: Sequence[str]) -> None:
        names = dict(enumerate(classes))
        with path.open('w', newline='', encoding='utf-8') as file:
            rows = csv.writer(file)
            rows.writerow(['image', 'label', 'class', 'score'])
            for record in self._read(ids):
                name, label = record['image'], record['label']
                rows.writerow([name, label, names.get(label, label), record['score']])

    def _coco(self, path: Path, ids: Mapping, classes: Sequence[str]) -> None:
        """Write COCO JSON record by record; image ids are unique across shards."""
        parts = dict(
            categories=(dict(id=i, name=n) for i, n in enumerate(classes, start=1)),
            images=(
                dict(id=ids[r['image']], file_name=r['image'])
                | dict(height=r['height'], width=r['width'])
                for r in self._read(ids)
            ),
            annotations=(
                dict(id=ids[r['image']] * MOST_OBJECTS + i, image_id=ids[r['image']])
                | found
                for r in self._read(ids)
                for i, found in enumerate(r['objects'])
            ),
        )
        with path.open('w', encoding='utf-8') as file:
            begin = '{'
            for key, items in parts.items():
                file.write(f'{begin}"{key}": [')
                begin = ',\n'
                for i, item in enumerate(items):
                    file.write(f'{"," if i else ""}\n{json.dumps(item)}')
                file.write(']')
            file.write('}\n')


def to_pixels(found: np.ndarray) -> np.ndarray:
    """Convert a map to pixels: classes in 8 or 16 bits, depths in millimetres."""
    if found.dtype.kind == 'f':
        millimetres = np.nan_to_num(found * 1000.0).round()
        return millimetres.clip(0, 65535).astype(np.uint16)
    return found.astype(np.uint8 if found.max() < 256 else np.uint16)


def describe(found: np.ndarray | Detections) -> dict:
    """Convert a prediction to JSON types: the top class, or objects as in COCO."""
    if not isinstance(found, Detections):
        label = int(found.argmax())
        return dict(label=label, score=round(float(found[label]), 6))
    objects = []
    for i, (left, top, right, bottom) in enumerate(found.boxes.astype(float)):
        box = [round(x, 3) for x in (left, top, right - left, bottom - top)]
        about = dict(category_id=int(found.labels[i]) + 1, bbox=box, iscrowd=0)
        about |= dict(score=round(float(found.scores[i]), 6), area=box[2] * box[3])
        if found.masks is not None:
            mask = found.masks[i]
            about |= dict(area=int(mask.sum()), segmentation=_run_lengths(mask))
        objects.append(about)
    return dict(objects=objects)


def _run_lengths(mask: np.ndarray) -> dict:
    """Return COCO's uncompressed run lengths, column-major and zeros first."""
    pixels = np.concatenate([[False], mask.ravel(order='F')])
    changes = np.flatnonzero(pixels[1:] != pixels[:-1])
    counts = np.diff(changes, prepend=0, append=mask.size).tolist()
    return dict(size=[*mask.shape], counts=counts)
