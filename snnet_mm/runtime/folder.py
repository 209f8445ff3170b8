"""Prediction of a folder of images to files, resumable after an interruption."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .checks import check, is_whole
from .deadline import Deadline
from .image_io import ImageFile, encode, list_image_files, read_image

STATE = '.predict'  # folder of unfinished files, and of boxes and classes by image
Predict = Callable[[list[np.ndarray]], Sequence]


class Summary(NamedTuple):
    """Counts of images predicted now and before, and why others were skipped."""

    predicted: int
    before: int
    unreadable: dict[str, str]


class Folder:
    """Images to predict, and the files of their predictions.

    Masks are written as PNG files of class indices (16-bit above 255, else 8-bit),
    depths as 16-bit PNG files in millimetres. Boxes are written to ``predictions.json``
    in COCO format, classes to ``predictions.csv``. All files are written atomically.
    Images that cannot be read or predicted are listed in ``unreadable.txt``.

    Args:
        source: Folder or list of images; see :func:`list_image_files`.
        out: Output folder.
        task: Name of the model's task.
        classes: Names of the classes.
        channels: Channels of the images: 1, 3 or 4.
    """

    def __init__(
        self,
        source: str | os.PathLike,
        out: str | os.PathLike,
        task: str,
        classes: Sequence[str] = (),
        channels: int = 3,
    ) -> None:
        expected = '1, 3 or 4 for image files; for others, pass arrays to StitchRuntime'
        check(channels in (1, 3, 4), 'in_channels', channels, expected)
        self.out, self.images = Path(out).resolve(), list_image_files(source, out)
        self.task, self.classes, self.channels = task, tuple(classes), channels
        self._maps = task in ('segmentation', 'depth')
        #: The images without a prediction.
        self.left = [i for i in self.images if not self._path(i).exists()]

    def predict(self, predict: Predict, images: Sequence[ImageFile]) -> dict[str, str]:
        """Predict and write images; return why others were skipped, by name."""
        arrays, reasons = {}, {}
        for image in images:
            try:
                arrays[image] = read_image(image.path, self.channels)
            except Exception as error:  # decoders raise arbitrary exceptions
                reasons[image.name] = _one_line(error)
        try:
            found = predict([*arrays.values()]) if arrays else []
        except ValueError as error:
            if len(arrays) == 1:
                return reasons | {image.name: _one_line(error) for image in arrays}
            for image in arrays:
                reasons |= self.predict(predict, [image])
            return reasons
        for (image, array), prediction in zip(arrays.items(), found, strict=True):
            height, width = array.shape[:2]
            about = dict(image=image.name, height=height, width=width)
            content = encode(prediction, len(self.classes), **about)
            self._write(self._path(image), content)
        return reasons

    def finish(self, reasons: Mapping[str, str]) -> Summary:
        """Write the files about all images, after all are predicted."""
        listed = self.out / 'unreadable.txt'
        listed.unlink(missing_ok=True)
        if reasons:
            lines = ''.join(f'{name}\t{why}\n' for name, why in reasons.items())
            self._write(listed, lines.encode())
        if self._maps:
            shutil.rmtree(self.out / STATE, ignore_errors=True)
        elif self.task == 'classification':
            self._write(self.out / 'predictions.csv', self._csv().encode())
        else:
            coco = json.dumps(self._coco())
            self._write(self.out / 'predictions.json', coco.encode())
        number = len(self.left)
        return Summary(number - len(reasons), len(self.images) - number, dict(reasons))

    def _path(self, image: ImageFile) -> Path:
        if self._maps:
            return self.out / f'{image.stem}.png'
        return self.out / STATE / f'{image.stem}.json'

    def _write(self, path: Path, content: bytes) -> None:
        temporary = self.out / STATE / f'{path.name}.{os.getpid()}'
        for folder in (path.parent, temporary.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with temporary.open('wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def _records(self) -> dict[int, dict]:
        """Return the predictions of images, by their numbers from 1."""
        paths = {i: self._path(image) for i, image in enumerate(self.images, start=1)}
        return {i: json.loads(p.read_bytes()) for i, p in paths.items() if p.exists()}

    def _csv(self) -> str:
        file, names = io.StringIO(), dict(enumerate(self.classes))
        rows = csv.writer(file)
        rows.writerow(['image', 'label', 'class', 'score'])
        for found in self._records().values():
            label = found['label']
            name = names.get(label, label)
            rows.writerow([found['image'], label, name, found['score']])
        return file.getvalue()

    def _coco(self) -> dict:
        annotations, images = [], []
        for i, found in self._records().items():
            for about in found.pop('objects'):
                annotations.append(dict(id=len(annotations) + 1, image_id=i) | about)
            images.append(dict(id=i, file_name=found.pop('image')) | found)
        named = [dict(id=i, name=n) for i, n in enumerate(self.classes, start=1)]
        return dict(annotations=annotations, images=images, categories=named)


def predict_folder(
    predict: Predict,
    folder: Folder,
    batch_size: int = 8,
    deadline: Deadline | None = None,
    report: Callable[[int, int], object] = lambda done, total: None,
) -> Summary:
    """Predict all images that have no prediction yet.

    Args:
        predict: Predicts a list of images, like :meth:`StitchRuntime.predict_batch`.
        folder: The images, and where predictions are written.
        batch_size: Images per call.
        deadline: Switches stitches between batches.
        report: Called with the finished and the total number of images.
    """
    check(is_whole(batch_size, 1), '--batch-size', batch_size, 'a whole number from 1')
    reasons, left, total = {}, len(folder.left), len(folder.images)
    while left:
        report(total - left, total)
        batch = folder.left[-left:][:batch_size]
        if deadline is not None:
            deadline.begin(left)
        reasons |= folder.predict(predict, batch)
        if deadline is not None:
            deadline.end(len(batch))
        left -= len(batch)
    report(total, total)
    return folder.finish(reasons)


def _one_line(error: Exception) -> str:
    return ' '.join(f'{type(error).__name__}: {error}'.split())
