"""Prediction of a folder of images to files, resumable after an interruption."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .checks import check, is_whole
from .image_io import RECORD, ImageFile, encode, list_image_files, read_image
from .record import check_request, file_facts, read_record

STATE = '.predict'  # folder of unfinished files, and of boxes and classes by image
Predict = Callable[[list[np.ndarray]], Sequence]


class Folder:
    """Images to predict, and the files of their predictions.

    Masks are written as PNG files of class indices (16-bit above 255, else 8-bit),
    depths as 16-bit PNG files in millimetres. Boxes are written to ``predictions.json``
    in COCO format, classes to ``predictions.csv``. All files are written atomically.
    Images that cannot be read or predicted are listed in ``unreadable.txt``.

    A hidden file records the request, and the sizes and times of the images. Images
    that have changed since are predicted again. Predictions of another request, and
    files that are not predictions, are not overwritten.

    Args:
        source: Folder or list of images; see :func:`list_image_files`.
        out: Output folder.
        task: Name of the model's task.
        classes: Names of the classes.
        channels: Channels of the images: 1, 3 or 4.
        request: All that decides the predictions, as in JSON; see
            :attr:`StitchRuntime.request`.
        force: Whether to predict all images again, also those of another request.

    Raises:
        ValueError: If there is no image, or the folder belongs to another request.
    """

    def __init__(
        self,
        source: str | os.PathLike,
        out: str | os.PathLike,
        task: str,
        classes: Sequence[str] = (),
        channels: int = 3,
        request: Mapping[str, object] | None = None,
        force: bool = False,
    ) -> None:
        expected = '1, 3 or 4 for image files; for others, pass arrays to StitchRuntime'
        check(channels in (1, 3, 4), 'in_channels', channels, expected)
        self.out, self.images = Path(out).resolve(), list_image_files(source, out)
        self.task, self.classes, self.channels = task, tuple(classes), channels
        # The file of all predictions, unless each is a file of its own.
        joint = dict(segmentation=None, depth=None, classification='predictions.csv')
        joint = joint.get(task, 'predictions.json')
        self._joint = joint and self.out / joint
        self._request = dict(task=task) | dict(request or {})
        self._facts = {i.stem: file_facts(i.path) for i in self.images}
        record = read_record(self.out / RECORD)
        known = record.get('request', {})
        self._known = record.get('images', {}) if known == self._request else {}
        done = set() if force else self._done(known)
        #: The images without a prediction, or changed since.
        self.left = [i for i in self.images if i not in done]

    def _done(self, known: Mapping[str, object]) -> set[ImageFile]:
        """Return the images whose predictions are up to date."""
        if known:
            instead = '--force to predict all again'
            check_request(known, self._request, '--out', self.out, instead)
        written = [i for i in self.images if self._path(i).exists()]
        others = [self._path(i) for i in written if i.stem not in self._known]
        if not known and self._joint is not None and self._joint.exists():
            others.append(self._joint)
        found = others and f'{self.out}, with {others[0].name}'
        expected = 'a folder without such files of other origin, or --force to '
        check(not others, '--out', found, f'{expected}overwrite them')
        return {i for i in written if self._known[i.stem] == self._facts[i.stem]}

    def begin(self) -> None:
        """Remove outdated predictions, then record the request and the images."""
        for image in self.left:
            self._path(image).unlink(missing_ok=True)
        record = dict(request=self._request, images=self._known | self._facts)
        self._write(self.out / RECORD, json.dumps(record).encode())

    def predict(self, predict: Predict, images: Sequence[ImageFile]) -> dict[str, str]:
        """Predict and write images; return why others were skipped, by name."""
        arrays, reasons = {}, {}
        for image in images:
            try:
                arrays[image] = read_image(image.path, self.channels)
            except ValueError as error:
                reasons[image.name] = str(error)
        try:
            found = predict([*arrays.values()]) if arrays else []
        except ValueError as error:
            if len(arrays) == 1:
                return reasons | {image.name: str(error) for image in arrays}
            for image in arrays:
                reasons |= self.predict(predict, [image])
            return reasons
        for (image, array), prediction in zip(arrays.items(), found, strict=True):
            height, width = array.shape[:2]
            about = dict(image=image.name, height=height, width=width)
            content = encode(prediction, len(self.classes), **about)
            self._write(self._path(image), content)
        return reasons

    def finish(self, reasons: dict[str, str]) -> dict[str, str]:
        """Write the files about all images; return why some were skipped."""
        listed = self.out / 'unreadable.txt'
        listed.unlink(missing_ok=True)
        if reasons:
            lines = ''.join(f'{name}\t{why}\n' for name, why in reasons.items())
            self._write(listed, lines.encode())
        if self._joint is None:
            shutil.rmtree(self.out / STATE, ignore_errors=True)
        else:
            classifies = self.task == 'classification'
            content = self._csv() if classifies else json.dumps(self._coco())
            self._write(self._joint, content.encode())
        return reasons

    def _path(self, image: ImageFile) -> Path:
        if self._joint is None:
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
        rows: list[tuple] = [('image', 'label', 'class', 'score')]
        names = dict(enumerate(self.classes))
        for found in self._records().values():
            name = names.get(label := found['label'], label)
            rows.append((found['image'], label, name, found['score']))
        csv.writer(file := io.StringIO()).writerows(rows)
        return file.getvalue()

    def _coco(self) -> dict:
        annotations, images = [], []
        for i, found in self._records().items():
            annotations += [dict(image_id=i) | about for about in found.pop('objects')]
            images.append(dict(id=i, file_name=found.pop('image')) | found)
        numbered = [dict(id=i) | about for i, about in enumerate(annotations, start=1)]
        named = [dict(id=i, name=n) for i, n in enumerate(self.classes, start=1)]
        return dict(annotations=numbered, images=images, categories=named)


def predict_folder(
    predict: Predict,
    folder: Folder,
    batch_size: int = 8,
    before: Callable[[int], object] = lambda left: None,
) -> dict[str, str]:
    """Predict all images without a prediction; return why others were skipped, by name.

    Args:
        predict: Predicts a list of images, like :meth:`StitchRuntime.predict_batch`.
        folder: The images, and where predictions are written.
        batch_size: Images per call.
        before: Called before every batch with the number of images that are left.
    """
    check(is_whole(batch_size, 1), '--batch-size', batch_size, 'a whole number from 1')
    folder.begin()
    reasons = {}
    for left in range(len(folder.left), 0, -batch_size):
        before(left)
        reasons |= folder.predict(predict, folder.left[-left:][:batch_size])
    return folder.finish(reasons)
