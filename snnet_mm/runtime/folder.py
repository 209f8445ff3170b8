"""Prediction of a folder of images to files, resumable after an interruption."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .checks import check, is_whole
from .image_io import ImageFile, encode, list_image_files, read_image

STATE = '.predict'  # folder of unfinished files, and of boxes and classes by image
Predict = Callable[[list[np.ndarray]], Sequence]


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
                reasons[image.name] = repr(error)
        try:
            found = predict([*arrays.values()]) if arrays else []
        except ValueError as error:
            if len(arrays) == 1:
                return reasons | {image.name: repr(error) for image in arrays}
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
        if self._maps:
            shutil.rmtree(self.out / STATE, ignore_errors=True)
        elif self.task == 'classification':
            self._write(self.out / 'predictions.csv', self._csv().encode())
        else:
            coco = json.dumps(self._coco())
            self._write(self.out / 'predictions.json', coco.encode())
        return reasons

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
    reasons = {}
    for left in range(len(folder.left), 0, -batch_size):
        before(left)
        reasons |= folder.predict(predict, folder.left[-left:][:batch_size])
    return folder.finish(reasons)
