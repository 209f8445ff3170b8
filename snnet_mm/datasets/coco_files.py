"""COCO's annotation files, rewritten so that mmdet reads them as they are meant."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from snnet_mm.utils import is_number

from .image_files import ImageFacts
from .labelled_folder import (
    IMAGE_DIRS,
    SPLIT_OF,
    SPLITS,
    Item,
    LabelledFolder,
    Sample,
    Split,
)

KEYS = 'images', 'categories', 'annotations'
BACKGROUND = {'_background_', '__background__', 'background', '__ignore__', '_ignore_'}
WRITTEN = dict(description='written by tools/new_project.py')  # not the user's own


class CocoFiles(LabelledFolder):
    """Annotation files in COCO's format, in the folder or one below.

    Labels are lists of COCO's annotations with the name of their class.
    """

    task = 'det'

    def find(self) -> dict[str, list[Item]]:
        found = {}
        files = self._choose(self._find_files())  # images of others may not be here
        for split, (path, content) in files.items():
            try:
                found[split] = self._items(path, split, content)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{path} is not in COCO's format: {type(error).__name__} {error}"
                ) from error
        return found

    def read_label(self, image: Path, label: tuple, facts: ImageFacts) -> list[dict]:
        where, size, objects = label
        if all(size) and size != facts.size:
            turned = ' by its EXIF orientation' * (facts.orientation >= 5)
            raise ValueError(
                f'{image} has {facts.size} pixels{turned}: expected {size} by {where}'
            )
        kept = []
        for x in objects:
            box, outline = x.get('bbox'), x.get('segmentation')
            runs = bool(outline) and isinstance(outline, dict)
            wrong = runs and not _are_runs(outline, facts.size)
            if wrong or not (_are_numbers(box) and len(box) == 4):
                raise ValueError(
                    f'{where}: annotation {x.get("id")} of {image.name} has the box '
                    f'{str(box)[:60]}, outline {str(outline)[:60]}: expected x, y, '
                    f'width, height, and polygons or run lengths of size {facts.size}'
                )
            more = x.get('attributes')
            if isinstance(more, dict) and more.get('rotation'):
                self.odd['boxes have a rotation, which is ignored'].append(x.get('id'))
            if _is_seen(x, facts.size):
                kept.append(x | _changes(x))
            else:
                what = 'objects are left out, as mmdet does: by "ignore", outside '
                self.odd[f'{what}their image, or below 1 pixel'].append(x.get('id'))
        return kept

    def describe(self, samples: dict[str, list[Sample]]) -> None:
        objects = [(s, x) for part in samples.values() for s in part for x in s.label]
        self.define_classes(self._class_names({x['name'] for _, x in objects}))
        self.facts['with_mask'] = self._choose_outlines([x for _, x in objects])
        for split, part in samples.items():
            self.splits[split] = self._convert(split, part)
        self.counts.update(x['name'] for _, x in objects if not x['iscrowd'])
        self.facts['share'] = median(_share(x, s.facts.size) for s, x in objects)
        numbers = Counter(s.image for s, _ in objects)
        self.facts['max_per_image'] = max(numbers.values())

    def _find_files(self) -> dict[str, tuple[Path, dict]]:
        """Return the annotation file of every split, and its content."""
        found: dict[str, list[tuple[Path, dict]]] = {}
        for path in sorted([*self.root.glob('*.json'), *self.root.glob('*/*.json')]):
            try:
                content = json.loads(path.read_text(encoding='utf-8-sig'))
            except ValueError as error:
                raise ValueError(f'{path} is not valid JSON: {error}') from error
            content = content if isinstance(content, dict) else {}
            lists = [content.get(key) for key in KEYS]
            right = all(isinstance(x, list) for x in lists) and all(lists[:2])
            if right and content.get('info') != WRITTEN:
                found.setdefault(self._split_of(path), []).append((path, content))
        for split, files in found.items():
            # COCO itself also contains files of keypoints.
            files = [f for f in files if f[0].name.startswith('instances')] or files
            if len(files) > 1:
                raise ValueError(
                    f'{self.root} has several annotation files for {split}, '
                    f'{[str(path) for path, _ in files]}: expected one, or names with '
                    'train and val'
                )
            found[split] = files
        return {split: file for split, (file,) in found.items()}

    def _split_of(self, path: Path) -> str:
        """Return the split that is a word of a file's name, or else of its folder's."""
        for name in (path.stem, *path.relative_to(self.root).parts[:-1]):
            words = re.findall('[a-z]+', name.lower())
            if splits := [SPLIT_OF[word] for word in words if word in SPLIT_OF]:
                return splits[-1]
        return 'train'

    def _items(self, path: Path, split: str, content: dict) -> list[Item]:
        """Return the images of a file with its path, their sizes and objects."""
        categories = [dict(c, name=str(c['name'])) for c in content['categories']]
        if split == 'train':
            self.categories = categories
        images, names = content['images'], {c['id']: c['name'] for c in categories}
        files = [image['file_name'] for image in images]
        objects: dict[Any, list] = {image['id']: [] for image in images}
        if {len(objects), len({*files})} != {len(images)} or len(names) < len(
            categories
        ):
            raise ValueError(
                f'{path} has an image or a category twice: expected an id and a name '
                'of its own for each'
            )
        for x in content['annotations']:
            if x.get('image_id') not in objects or x.get('category_id') not in names:
                raise ValueError(
                    f'{path} has the annotation {str(x)[:120]}: expected image_id and '
                    f'category_id of its images and categories, {names}'
                )
            objects[x['image_id']].append(x | dict(name=names[x['category_id']]))
        labels = [(path, (x.get('height'), x.get('width'))) for x in images]
        labels = [(*x, objects[i]) for x, i in zip(labels, objects, strict=True)]
        return [*zip(self._locate(path, split, files), labels, strict=True)]

    def _locate(self, path: Path, split: str, names: Sequence[str]) -> Sequence[Path]:
        """Return the images that a file names.

        They are in the folder of the file, in a folder named after the split or the
        file, in one named ``images``, or in the root. Folders that all names begin with
        may be those of another machine.
        """
        parts = [PurePosixPath(name.replace('\\', '/')).parts for name in names]
        shared = len(os.path.commonprefix([p[:-1] for p in parts]))
        words = re.findall('[a-z0-9]+', path.stem.lower())
        words += [part.lower() for part in path.relative_to(self.root).parts[:-1]]
        named = [
            folder
            for folder in sorted(p for p in self.root.rglob('*') if p.is_dir())
            if {p.lower() for p in folder.relative_to(self.root).parts}
            <= {*IMAGE_DIRS, *SPLITS[split], *words}
        ]
        folders, nearest = ([path.parent], named, [self.root]), names
        for cut, some in product(range(shared + 1), folders):
            fits = []
            for folder in some:
                images = [folder.joinpath(*p[cut:]) for p in parts]
                lost = [str(image) for image in images if not image.is_file()]
                if not lost:
                    fits.append(images)
                elif len(lost) < len(nearest) or nearest is names:
                    nearest = lost
            if len(fits) > 1:
                raise ValueError(
                    f'{path} names images that are in {len(fits)} folders, such as '
                    f'{[str(images[0]) for images in fits]}: expected one folder'
                )
            if fits:
                if cut:
                    what = 'file names begin with folders that are not here, left out'
                    self.odd[what] += names
                return [Path(os.path.normpath(image)) for image in fits[0]]
        raise ValueError(
            f'{path} names {len(nearest)} images that do not exist: {nearest[:3]}'
        )

    def _class_names(self, used: set[str]) -> list[str]:
        """Return the names of the categories, without those that only group others."""
        above = {c.get('supercategory') for c in self.categories if c['name'] in used}
        names = [c['name'] for c in self.categories]
        unused = [n for n in names if n not in used]
        groups = [n for n in unused if n in above or n.lower() in BACKGROUND]
        self.odd['categories without an object group others: no classes'] += groups
        names = [name for name in names if name not in groups]
        if len({*names}) < len(names) or used - {*names}:
            raise ValueError(
                f'{self.root} has the categories {names} for training, and objects of '
                f'{sorted(used)}: expected different names, and no other objects'
            )
        return names

    def _choose_outlines(self, objects: Sequence[dict]) -> bool:
        """Return whether most objects have an outline; note the others."""
        outlined = [x['name'] for x in objects if x['segmentation']]
        without = [x['name'] for x in objects if not x['segmentation']]
        with_mask = len(outlined) >= len(without)
        if with_mask:
            self.odd['objects without an outline are left out: most have one'] += (
                without
            )
        else:
            self.odd['objects have an outline, not used: most have none'] += outlined
        return with_mask

    def _convert(self, split: str, samples: Sequence[Sample]) -> Split:
        """Return COCO's dict of some images; raise if their boxes are invalid."""
        folder, names = self.parts_of([s.image for s in samples])
        images, annotations, beyond = [], [], []
        for i, (name, (_, objects, facts)) in enumerate(
            zip(names, samples, strict=True)
        ):
            height, width = facts.size
            images.append(dict(id=i, file_name=name, height=height, width=width))
            for x in objects:
                left, top, w, h = x['bbox']
                if left + w > width + 1 or top + h > height + 1:
                    beyond.append(x['bbox'])
                if x['segmentation'] or not self.facts['with_mask']:
                    # pycocotools loses objects whose ids are equal or 0.
                    ids = dict(id=len(annotations) + 1, image_id=i)
                    ids['category_id'] = self.classes.index(x['name']) + 1
                    annotations.append(x | ids)
            if not objects:
                self.odd[f'{split} images without an object'].append(name)
        counted = [x for x in annotations if not x['iscrowd']]
        if not counted or len(beyond) * 2 > len(annotations):
            what = f'boxes beyond its images, such as {beyond[:1]}' if beyond else ''
            raise ValueError(
                f'{split} of {self.root} has {what or "no object"}: expected a {split} '
                'split with boxes as x, y, width, height in pixels, or none'
            )
        categories = [dict(id=i, name=n) for i, n in enumerate(self.classes, 1)]
        content = dict(info=WRITTEN, images=images, categories=categories)
        content['annotations'] = annotations
        return Split(len(images), dict(img=folder), content)


def _is_seen(x: dict, size: tuple[int, int]) -> bool:
    """Return whether mmdet's ``CocoDataset`` reads an object."""
    left, top, width, height = x['bbox']
    inside = left < size[1] and top < size[0] and left + width > 0 and top + height > 0
    return inside and min(width, height) >= 1 and not x.get('ignore')


def _changes(x: dict) -> dict[str, Any]:
    """Return an object's area, never 0, and its polygons of 3 or more points.

    mmdet leaves out objects without an area; pycocotools fails on other outlines.
    """
    area, outline = x.get('area'), x.get('segmentation') or []  # {} has no outline
    if not is_number(area) or area <= 0:
        area = x['bbox'][2] * x['bbox'][3]
    if isinstance(outline, list):
        outline = [outline] if _are_numbers(outline) else outline
        known = [p for p in outline if _are_numbers(p)]
        outline = [p for p in known if len(p) >= 6 and len(p) % 2 == 0]
    return dict(area=area, segmentation=outline, iscrowd=x.get('iscrowd', 0))


def _are_runs(outline: dict, size: tuple[int, int]) -> bool:
    """Return whether run lengths, compressed or not, fit an image size."""
    counts, right = outline.get('counts'), outline.get('size') == [*size]
    if isinstance(counts, str):
        return right
    return right and _are_numbers(counts) and sum(counts) == size[0] * size[1]


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def _share(x: dict, size: tuple[int, int]) -> float:
    """Return the root of a box's area as a fraction of the longer image side."""
    return max(0, x['bbox'][2] * x['bbox'][3]) ** 0.5 / max(size)
