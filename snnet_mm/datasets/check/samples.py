"""What can be wrong with one image and its annotation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageOps

# Boxes of many data sets reach beyond the image by rounding.
TOLERANCE = 1.0


@dataclass
class Look:
    """What one sample shows.

    Args:
        problems: Kind and details of everything that is wrong.
        counts: By class or bin of depth: pixels, objects, or 1 for an image.
    """

    problems: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, kind: str, details: str = '') -> None:
        """Note a problem."""
        self.problems.append((kind, details))


@dataclass(frozen=True)
class Sample(ABC):
    """An image file and what belongs to it."""

    image: str

    def look(self) -> Look:
        """Read everything once."""
        found = Look()
        size = None
        try:
            size = _read(self.image)[1]
        except Exception as error:  # what decoders raise is theirs
            found.add('unreadable image', _first_line(error))
        self.compare(size, found)
        return found

    @abstractmethod
    def compare(self, size: tuple[int, int] | None, found: Look) -> None:
        """Look at the annotation.

        Args:
            size: Height and width of the image, if it can be read.
            found: Where to note what is wrong.
        """


@dataclass(frozen=True)
class MapSample(Sample):
    """An image with a map of labels, as mmseg reads it."""

    label_map: str
    num_classes: int
    new_labels: Mapping[int, int] | None = None
    reduce_zero_label: bool = False
    ignore_index: int = 255

    def compare(self, size: tuple[int, int] | None, found: Look) -> None:
        """See :class:`Sample`."""
        labels = _annotation(self.label_map, size, found)
        if labels is None:
            return
        if labels.ndim != 2:
            found.add('annotation with channels', f'{self.label_map}: {labels.shape}')
            return
        values, pixels = np.unique(labels, return_counts=True)
        outside = []
        for value, number in zip(values.tolist(), pixels.tolist(), strict=True):
            label = (self.new_labels or {}).get(value, value)
            if self.reduce_zero_label:
                label = self.ignore_index if label in (0, 255) else label - 1
            if 0 <= label < self.num_classes:
                found.counts[label] = found.counts.get(label, 0) + number
            elif label != self.ignore_index:
                outside.append(value)
        if outside:
            found.add('labels outside the classes', f'{self.label_map}: {outside}')
        if not found.counts:
            found.add('empty annotation', f'{self.label_map}: no pixel of a class')


@dataclass(frozen=True)
class DepthSample(Sample):
    """An image with a map of depth; 0 is no depth."""

    depth_map: str
    metres: float
    nearest: float
    farthest: float
    bins: int = 10

    def compare(self, size: tuple[int, int] | None, found: Look) -> None:
        """See :class:`Sample`."""
        depth = _annotation(self.depth_map, size, found)
        if depth is None:
            return
        depth = depth * self.metres
        if not np.isfinite(depth).all():
            found.add('depth that is no number', self.depth_map)
            depth = np.nan_to_num(depth, posinf=0, neginf=0)
        known = depth[depth != 0]
        if not known.size:
            found.add('empty annotation', f'{self.depth_map}: no depth anywhere')
            return
        inside = (known >= self.nearest) & (known <= self.farthest)
        if not inside.all():
            found.add(
                'depth outside the range',
                f'{self.depth_map}: {known.min():.3g} to {known.max():.3g} m, '
                f'{1 - inside.mean():.1%} of the pixels are outside',
            )
        places = known[inside] / self.farthest * self.bins
        numbers = np.bincount(np.minimum(places.astype(int), self.bins - 1))
        found.counts |= {i: int(n) for i, n in enumerate(numbers) if n}


@dataclass(frozen=True)
class ClassSample(Sample):
    """An image of one class or several."""

    labels: Sequence[int]
    num_classes: int

    def compare(self, size: tuple[int, int] | None, found: Look) -> None:
        """See :class:`Sample`."""
        outside = [x for x in self.labels if not 0 <= x < self.num_classes]
        if outside:
            found.add('labels outside the classes', f'{outside}')
        if not self.labels:
            found.add('empty annotation', 'no label')
        found.counts |= {x: 1 for x in self.labels if x not in outside}


@dataclass(frozen=True)
class ObjectsSample(Sample):
    """An image with objects, as a COCO file lists them.

    ``objects`` are their annotations, ``classes`` the class of every category id.
    """

    size: tuple[int, int] | None
    objects: Sequence[Mapping]
    classes: Mapping[int, int]
    masks: bool = False

    def compare(self, size: tuple[int, int] | None, found: Look) -> None:
        """See :class:`Sample`."""
        if None not in (size, self.size) and size != self.size:
            found.add('sizes disagree', f'image {size}, annotation file {self.size}')
        if not self.objects:
            found.add('empty annotation', 'no object')
        for thing in self.objects:
            self._check(thing, size or self.size, found)

    def _check(self, thing: Mapping, size: tuple[int, int] | None, found: Look) -> None:
        name, category = f'annotation {thing.get("id")}', thing.get('category_id')
        if category not in self.classes:
            found.add('unknown category', f'{name}: category_id {category}')
        else:
            label = self.classes[category]
            found.counts[label] = found.counts.get(label, 0) + 1
        box = thing.get('bbox')
        if not _is_box(box):
            found.add('no box', f'{name}: bbox {box!r}')
            return
        x, y, width, height = box
        if width < 1 or height < 1:
            found.add('box smaller than a pixel', f'{name}: {width:g} x {height:g}')
        beyond = max(-x, -y)
        if size is not None:
            beyond = max(beyond, x + width - size[1], y + height - size[0])
        if beyond > TOLERANCE:
            found.add('box outside the image', f'{name}: {box}, image {size}')
        if self.masks and not thing.get('segmentation'):
            found.add('no mask', name)


def _is_box(box: object) -> bool:
    listed = isinstance(box, list) and len(box) == 4
    return listed and all(isinstance(x, int | float) and np.isfinite(x) for x in box)


def _annotation(
    path: str, size: tuple[int, int] | None, found: Look
) -> np.ndarray | None:
    """A map of annotation, if it can be read and has the size of the image."""
    try:
        values, own = _read(path)
    except Exception as error:
        found.add('unreadable annotation', f'{path}: {_first_line(error)}')
        return None
    if size is not None and own != size:
        found.add('sizes disagree', f'image {size}, {path} {own}')
    return values


def _read(path: str) -> tuple[np.ndarray, tuple[int, int]]:
    """Pixels, and height and width, of a file."""
    if path.endswith(('.npy', '.npz')):
        values = np.load(path, allow_pickle=False)
        values = values if isinstance(values, np.ndarray) else values[values.files[0]]
        return values, tuple(values.shape[:2])
    with Image.open(path) as image:
        # Truncated files end in an error here; as mm does, cameras are turned.
        turned = ImageOps.exif_transpose(image)
        turned.load()
        return np.asarray(turned), (turned.height, turned.width)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
