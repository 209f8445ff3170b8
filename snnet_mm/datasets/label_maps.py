"""Folders of images with masks or depth maps."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from statistics import median

import numpy as np

from snnet_mm.utils import check

from .image_files import ImageFacts, opened
from .labelled_folder import (
    IMAGE_DIRS,
    Item,
    LabelledFolder,
    Sample,
    Split,
    find_parts,
)

MASK_DIRS = (
    *('masks', 'mask', 'labels', 'label', 'annotations', 'ann_dir'),
    *('segmentationclass', 'segmentationclasspng'),
    *('gt', 'gtfine', 'gtcoarse', 'groundtruth', 'targets'),
)
LISTS = '.', 'splits', 'ImageSets/Segmentation'  # folders of train.txt and val.txt
DEPTH_DIRS = 'depth', 'depths', 'depth_maps', 'sync_depth', 'labels', 'gt', 'masks'
IGNORED = 255  # label of pixels without a class
MASK_MODES = {'1', 'L', 'P', 'I', 'I;16', 'I;16B', 'I;16L', 'I;16N'}
FULL = 2**16 - 1  # often marks missing depth
SHALLOW = 100  # depth maps whose values are all lower are not in millimetres
# Words, numbers and separators of a name; leftImg8bit is one word, img1 is two.
WORD = re.compile(r'[^\W\d_]+(?:\d+[^\W\d_]+)*|\d+|[\W_]')


class LabelMaps(LabelledFolder):
    """Images and label maps in two folders, with splits around or inside them."""

    label_dirs: tuple[str, ...]
    key: str  # of the path of a label map in mmseg

    def find(self) -> dict[str, list[Item]]:
        files: dict[str, dict[str, list]] = {}
        for path, split, folder, name in find_parts(self.root):
            part = files.setdefault(folder.lower(), {})
            part.setdefault(split, []).append((name, path))
        images, labels = (
            next((files[name] for name in names if name in files), {})
            for names in (IMAGE_DIRS, self.label_dirs)
        )
        if images and labels:
            what = f'splits of {self.root} have images or labels alone, left out'
            self.odd[what] += sorted(images.keys() ^ labels.keys())
        both = sorted(images.keys() & labels.keys())
        found = {s: self._match(images[s], labels[s]) for s in both}
        return self._listed(found[both[0]]) or found if len(both) == 1 else found

    def _listed(self, items: list[Item]) -> dict[str, list[Item]]:
        """Return the items of the splits that train.txt and val.txt list, if any do."""
        found, names = {}, {image.stem: (image, label) for image, label in items}
        for folder in LISTS:
            files = {s: self.root / folder / f'{s}.txt' for s in ('train', 'val')}
            if not all(file.is_file() for file in files.values()):
                continue
            for split, file in files.items():
                text = file.read_text(encoding='utf-8-sig')
                stems = {Path(n).stem for n in re.findall(r'^\s*(\S+)', text, re.M)}
                found[split] = [names[stem] for stem in sorted(stems & names.keys())]
                missing = sorted(stems - names.keys())
                self.odd[f'names in {file} match no image with a label'] += missing
                check(found[split], str(file), missing[:3], 'images with labels')
            break
        return found

    def describe(self, samples: dict[str, list[Sample]]) -> None:
        for split, part in samples.items():
            folder, images = self.parts_of([s.image for s in part])
            label_folder, labels = self.parts_of([s.label[0] for s in part])
            lines = ['\t'.join(pair) for pair in zip(images, labels, strict=True)]
            prefix = {'img_path': folder, self.key: label_folder}
            self.splits[split] = Split(len(lines), prefix, lines)

    def _match(self, *files: list[tuple[str, Path]]) -> list[Item]:
        """Pair images with their labels by name, or by the core of the name."""
        images, labels = map(dict, files)
        equal = {name: name for name in images.keys() & labels.keys()}
        image_cores, label_cores = _cores(images), _cores(labels)
        cores = image_cores.keys() & label_cores.keys()
        similar = {image_cores[core]: label_cores[core] for core in cores}
        partner = max(equal, similar, key=len)
        if not partner or [len(images), len(labels)] != [len(part) for part in files]:
            raise ValueError(
                f'images and labels of {self.root}, such as {min(images.values())} and '
                f'{min(labels.values())}, have different or duplicate names: '
                'expected one label for every image, with the same name, except for a '
                'prefix or suffix that all images or labels share'
            )
        without = sorted(images.keys() - partner.keys())
        unused = sorted(labels.keys() - {*partner.values()})
        self.odd[f'images of {self.root} without a label, left out'] += without
        self.odd[f'labels of {self.root} without an image, left out'] += unused
        return sorted((images[i], labels[j]) for i, j in partner.items())


class Masks(LabelMaps):
    """Images with masks of class indices."""

    task = 'seg'
    label_dirs = MASK_DIRS
    key = 'seg_map_path'

    def read_label(
        self, image: Path, label: Path, facts: ImageFacts
    ) -> tuple[Path, Counter[int]]:
        """Return the mask, and the number of pixels of every label."""
        found = np.unique(_read_map(label, facts), return_counts=True)
        values = Counter(dict(zip(*(x.tolist() for x in found), strict=True)))
        end = len(self.classes) or IGNORED
        if wrong := sorted(values.keys() - {*range(end), IGNORED}):
            raise ValueError(
                f'{label} has the labels {wrong[:5]}: expected 0 to {end - 1}, or '
                f'{IGNORED} for none (option: --classes)'
            )
        return label, values

    def describe(self, samples: dict[str, list[Sample]]) -> None:
        super().describe(samples)
        number = len(self.classes)
        expected = f'at most {IGNORED}; label maps have 8 bits, {IGNORED} is ignored'
        check(number <= IGNORED, '--classes', f'{number} names', expected)
        found = dict(s.label for part in samples.values() for s in part)
        labels, where = sum(found.values(), Counter()), min(found).parent
        named = sorted(labels.keys() - {IGNORED})
        binary = IGNORED in labels and named in ([], [0])
        if binary and named and number == 2:
            self.facts['label_map'] = {IGNORED: 1}
            labels[1], binary = labels.pop(IGNORED), False
            self.odd[f'masks have {IGNORED}, read as {self.classes[1]}'] += [
                path.name for path, values in found.items() if values.pop(IGNORED, 0)
            ]
        known = number or (len(named) > 1 and named == [*range(len(named))])
        if binary or not known:
            raise ValueError(
                f'{where} has the labels {sorted(labels)[:10]}: expected 0, 1, 2 and '
                f'so on, or all names (option: --classes); {IGNORED} is for pixels '
                'without a class, unless masks have only 0 and 255 and --classes gives '
                'both a name'
            )
        self.classes = self.classes or [f'class_{i}' for i in named]
        self.counts.update({name: labels[i] for i, name in enumerate(self.classes)})
        ignored = [path.name for path, values in found.items() if IGNORED in values]
        self.odd[f'masks have the label {IGNORED}, ignored'] += ignored


class DepthMaps(LabelMaps):
    """Images with depth maps of 16 bits, in millimetres."""

    task = 'depth'
    label_dirs = DEPTH_DIRS
    key = 'depth_map_path'

    def find(self) -> dict[str, list[Item]]:
        check(not self.classes, '--classes', self.classes, 'no names for depth maps')
        return super().find()

    def read_label(
        self, image: Path, label: Path, facts: ImageFacts
    ) -> tuple[Path, list[float]]:
        """Return the depth map, and its minimum, median and maximum depth if any."""
        pixels = _read_map(label, facts)
        if pixels.dtype == np.uint8:
            raise ValueError(f'{label} has 8 bits: expected a depth map of 16 bits')
        valid = pixels[pixels > 0]
        return label, np.quantile(valid, [0, 0.5, 1]).tolist() if valid.size else []

    def describe(self, samples: dict[str, list[Sample]]) -> None:
        super().describe(samples)
        depths = dict(s.label for part in samples.values() for s in part)
        some = [depth for depth in depths.values() if depth]
        low, middle, high = zip(*some or [(0, 0, 0)], strict=True)
        if max(high) < SHALLOW:
            raise ValueError(
                f'{min(depths).parent} has values of {max(high):g} at most: expected '
                'depths in millimetres; masks of classes are --task seg'
            )
        self.facts['depths'] = min(low), median(middle), max(high)
        self.odd[
            f'depth maps reach {FULL}, which is trained as a depth of 65.5 m: where it '
            'marks missing depth, write 0'
        ] += [path.name for path, depth in depths.items() if FULL in depth]


def _cores(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return names by folder and core, which lacks a prefix and suffix of all names.

    Prefix and suffix consist of words, as in ``img_1`` and ``1_mask``. Numbers belong
    to the core.
    """
    words = {name: WORD.findall(name.rpartition('/')[2]) for name in names}
    begin, end = (
        len([*takewhile(lambda word: not word.isdigit(), os.path.commonprefix(some))])
        for some in ([*words.values()], [w[::-1] for w in words.values()])
    )
    cores = {name: ''.join(w[begin : len(w) - end]) for name, w in words.items()}
    return {(os.path.dirname(n), core): n for n, core in cores.items() if core}


def _read_map(path: Path, facts: ImageFacts) -> np.ndarray:
    """Return the label map ``(H, W)`` of an image."""
    with opened(path) as file:
        pixels = np.asarray(file)
    if file.mode not in MASK_MODES or file.format == 'JPEG':
        raise ValueError(
            f'{path} is a {file.format} of mode {file.mode}: expected a PNG of one '
            'channel that holds the number of a class, or a depth, in every pixel; '
            'tools/dataset_converters/color_masks.py converts colours'
        )
    if pixels.shape != facts.size:
        turned = ' by its EXIF orientation' * (facts.orientation >= 5)
        raise ValueError(
            f'{path} has {pixels.shape} pixels: expected {facts.size} as its image '
            f'has{turned}'
        )
    return pixels.astype(np.uint8) if file.mode == '1' else pixels
