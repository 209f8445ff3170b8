"""Pre- and postprocessing of a graph, as the manifest specifies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .bundle import Run
from .checks import check
from .detections import place
from .resizing import (
    best_class,
    crop_center,
    fit_edge,
    fit_size,
    resize_image,
    resize_maps,
    windows,
)

# Steps that change the pixels of an image as read, in the order of the manifest.
OF_IMAGE = {'resize', 'resize_edge', 'center_crop'}
# Preprocessing steps implemented here; others are left to the caller.
KNOWN = OF_IMAGE | {'windows', 'flip_average', 'channels', 'pad', 'batch'}


def left_steps(left: Sequence[str]) -> str:
    """Return the sentence about the steps of a pipeline that do not run here."""
    return (
        f'neither graphs nor the runtime run {", ".join(left)} of the test pipeline, '
        'so image files cannot be predicted, only arrays that have been through the '
        'pipeline (StitchRuntime(..., prepared=True))'
    )


class Steps:
    """Resizing, windows and postprocessing for a graph, as in mm's test pipeline.

    Args:
        manifest: The manifest, of which ``input`` and ``caller`` are read.
        prepared: Whether images have been through the steps of the test pipeline.
            Default: False.
    """

    def __init__(self, manifest: Mapping, prepared: bool = False) -> None:
        _, self.channels, *size = manifest['input']['shape']
        self.size, self.prepared = tuple(size), prepared
        before = manifest['caller']['before']
        self.before, self.after = (
            {step['step']: step for step in manifest['caller'][key]}
            for key in ('before', 'after')
        )
        self._of_image = [s for s in before if s['step'] in OF_IMAGE and not prepared]
        self.objects = self.after.get('instances') or self.after.get('segments')
        #: Names of the steps that are left to the caller.
        self.left = sorted({*self.before} - KNOWN)

    def check_image(self, image: np.ndarray) -> None:
        """Raise if an array is not an image or, if prepared, not of the right size."""
        is_array = isinstance(image, np.ndarray)
        found = f'{image.dtype} {image.shape}' if is_array else type(image).__name__
        # Steps of a pipeline may give floats.
        kinds = (np.uint8, np.float32) if self.prepared else (np.uint8,)
        fits = is_array and image.dtype in kinds and image.ndim == 3
        fits = fits and image.shape[2] == self.channels and image.size
        order = 'RGB' if self.channels == 3 else 'channels as mm loads them'
        expected = f'a non-empty uint8 array (H, W, {self.channels}) of {order}'
        check(fits, 'argument: image', found, expected)
        expected = f'{self.size}, the size of prepared images'
        fits = not self.prepared or image.shape[:2] == self.size
        check(fits, 'argument: image', found, expected)

    def fits(self, size: tuple[int, int]) -> bool:
        """Return whether an image of a size runs at the size at which mm runs it."""
        for step in self._of_image:
            size = self._size_after(step, size)
        return self._fit(size) == size

    def predict(self, run: Run, images: Sequence[np.ndarray]) -> list:
        """Predict images; those of equal size after preprocessing run as one batch."""
        prepared, groups = [*map(self._prepare, images)], defaultdict(list)
        for i, (pixels, _) in enumerate(prepared):
            groups[pixels.shape].append(i)
        predicted: list = [None] * len(images)
        for members in groups.values():
            batch = np.stack([prepared[i][0] for i in members])
            if self.objects:
                outputs = zip(*run(batch), strict=True)
            else:
                maps = 'resize' in self.after  # classifiers output no maps
                outputs = self._maps(run, batch) if maps else run(batch)[0]
            for i, found in zip(members, outputs, strict=True):
                predicted[i] = self._decide(found, images[i].shape[:2], prepared[i][1])
        return predicted

    def _prepare(self, image: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """Return the graph's input ``(C, H, W)`` and the size before padding."""
        pixels = self._transformed(image)
        if self.before['channels']['order'] == 'BGR':
            pixels = pixels[..., ::-1]
        size, padded = pixels.shape[:2], self._padded(pixels.shape[:2])
        if padded != size:
            filled = np.empty((*padded, self.channels), np.float32)
            filled[:] = self.before['pad']['value']
            filled[: size[0], : size[1]] = pixels
            pixels = filled
        return pixels.transpose(2, 0, 1).astype(np.float32), size

    def _decide(
        self, found: Any, size: tuple[int, int], resized: tuple[int, int]
    ) -> Any:
        """Return the prediction of an image; see :class:`StitchRuntime`."""
        if self.objects:
            factors = resized[1] / size[1], resized[0] / size[0]
            return place(found, self.objects, size, factors, resized)
        if 'resize' not in self.after:
            if 'sigmoid' in self.after:
                return 1 / (1 + np.exp(-found))
            exponents = np.exp(found - found.max())
            return exponents / exponents.sum()
        corners = self.after['resize']['align_corners']
        found = found[:, : resized[0], : resized[1]]
        if 'argmax' in self.after:
            return best_class(found, size, corners)
        maps = resize_maps(found, size, corners)
        if 'threshold' in self.after:
            above = self.after['threshold']['above']
            return (1 / (1 + np.exp(-maps[0])) > above).astype(np.int64)
        return maps[0]

    def _transformed(self, image: np.ndarray) -> np.ndarray:
        """Return an image after the steps of the pipeline, at a size that can run."""
        for step in self._of_image:
            size = self._size_after(step, image.shape[:2])
            if step['step'] == 'center_crop':
                image = crop_center(image, size)
                continue
            if step is self._of_image[-1]:  # pixels are interpolated once
                size = self._fit(size)
            image = resize_image(image, size, step['backend'], step['interpolation'])
        return resize_image(image, self._fit(image.shape[:2]))

    def _size_after(self, step: Mapping, size: tuple[int, int]) -> tuple[int, int]:
        """Return the height and width of an image after a step of the pipeline."""
        if step['step'] == 'center_crop':
            return tuple(map(min, size, step['size']))
        if step['step'] == 'resize_edge':
            fitted = fit_edge(size, step['length'], step['edge'])
        else:
            fitted = fit_size(size, tuple(step['size']), step['keep_ratio'])
        expected = f'an image that is not empty after resizing to {fitted}'
        check(min(fitted), 'argument: image', size, expected)
        return fitted

    def _fit(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size at which an image can run, given that of the pipeline."""
        height, width = self._padded(size)
        if 'windows' in self.before:
            if height < self.size[0] or width < self.size[1]:
                return tuple(map(max, size, self.size))
        elif (height, width) != self.size:
            if not (self.objects and 'pad' in self.before):
                return self.size
            factor = min(of / side for of, side in zip(self.size, size, strict=True))
            return tuple(max(int(side * factor), 1) for side in size)
        return size

    def _padded(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size to which a resized image is padded, right and bottom."""
        step = self.before.get('pad', {})
        min_size, by = step.get('size') or (0, 0), step.get('size_divisor') or 1
        return tuple(
            max(-(-length // by) * by, low)
            for length, low in zip(size, min_size, strict=True)
        )

    def _maps(self, run: Run, pixels: np.ndarray) -> np.ndarray:
        """Return maps of images, averaged with their mirrored images if configured."""
        flip = self.before.get('flip_average')
        if flip and flip['of'] == 'image' and 'windows' in self.before:
            maps = self._slide(run, pixels)
            return (maps + self._slide(run, pixels[..., ::-1])[..., ::-1]) / 2
        return self._slide(run, pixels, bool(flip))

    def _slide(self, run: Run, pixels: np.ndarray, flip: bool = False) -> np.ndarray:
        """Return maps averaged over windows and, if ``flip``, over mirrored windows."""
        size, total, count = pixels.shape[2:], 0, np.zeros(pixels.shape[2:], np.float32)
        stride = self.before.get('windows', {}).get('stride', self.size)
        for y, x in windows(size, self.size, stride):
            part = np.ascontiguousarray(pixels[..., y, x])
            if flip:
                part = np.concatenate([part, part[..., ::-1]])
            maps = run(part)[0]
            if flip:
                maps, mirrored = np.split(maps, 2)
                maps = (maps + mirrored[..., ::-1]) / 2
            if not np.shape(total):
                total = np.zeros((*maps.shape[:2], *size), np.float32)
            total[..., y, x] += maps
            count[y, x] += 1
        return total / count
