"""Recognise a folder of labelled images by its layout, and check its content."""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from snnet_mm.utils import check

from .image_files import SUFFIXES, Size, find_images, note, opened, read_all, read_size
from .yolo import yolo_to_coco

TASKS = dict(seg='segmentation', depth='depth', det='detection', cls='classification')
LAYOUTS = """
  images/ and masks/ (or img_dir/, ann_dir/): masks of 8 bits, or depth maps of 16 bits
  annotations/*.json or */*.json in COCO's format: detection
  data.yaml of YOLO, with boxes or polygons: detection
  a folder of images for every class: classification
all with or without train/ and val/"""
IMAGE_DIRS = 'images', 'image', 'imgs', 'img', 'img_dir', 'JPEGImages', 'rgb'
LABEL_DIRS = (
    *('masks', 'mask', 'labels', 'label', 'annotations', 'ann_dir', 'depth', 'depths'),
    *('SegmentationClass', 'gt'),
)
SPLITS = dict(
    train=('train', 'training', 'train2017'),
    val=('val', 'valid', 'validation', 'val2017', 'test', 'testing'),
)
IGNORED = 255  # label of pixels without a class
MASK_MODES = {'1', 'L', 'P', 'I', 'I;16', 'I;16B'}
COCO_KEYS = {'id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd'}


@dataclass
class Split:
    """Images for training or validation.

    Attributes:
        number: Number of images.
        dataset: Arguments of the dataset: ``data_prefix`` and, if any, ``ann_file``.
        annotations: Annotation file to write: lines, or a dict in COCO's format.
    """

    number: int
    dataset: dict
    annotations: list[str] | dict | None = None


@dataclass
class LabelledFolder:
    """A recognised folder of labelled images.

    Attributes:
        task: Key of ``TASKS``.
        counts: Number of pixels, objects or images of every class.
        sizes: Number of images of every ``(height, width)``.
        notes: Sentences about oddities that do not prevent training.
        facts: Task-specific values, such as ``with_mask``.
    """

    root: Path
    task: str
    splits: dict[str, Split]
    classes: list[str]
    counts: list[int] = field(default_factory=list)
    sizes: Counter = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def annotation_file(out: Path, split: str, suffix: str) -> Path:
    """Return the annotation file that is written beside a config."""
    return out.with_name(f'{out.stem}_{split}{suffix}')


def read_folder(
    root: str | os.PathLike,
    task: str | None = None,
    classes: Sequence[str] = (),
    out: str | os.PathLike | None = None,
) -> LabelledFolder:
    """Recognise and check a folder; split it 80 to 20 if validation images are missing.

    Args:
        root: The folder.
        task: Key of ``TASKS``. Default: the task of the layout.
        classes: Class names of the labels in masks. Other layouts define their own.
        out: Config that will be written. If it exists, annotation files that were
            written with it are not read.
    """
    root, classes = Path(root).expanduser().resolve(), list(classes)
    check(task in (None, *TASKS), '--task', task, tuple(TASKS))
    check(len({*classes}) == len(classes), '--classes', classes, 'different names')
    if next(find_images(root), None) is None:
        raise ValueError(f'{root} has no images, {SUFFIXES} (argument: FOLDER)')
    out = out and Path(out).expanduser()
    written = SPLITS if out and out.exists() else ()
    own = {annotation_file(out, split, '.json').resolve() for split in written}
    read_coco = partial(_read_coco, skipped=own)
    readers = {_read_yolo: 'det', read_coco: 'det', _read_pairs: 'seg depth'}
    for read, tasks in (readers | {_read_classes: 'cls'}).items():
        if task is None or task in tasks.split():
            found = read(root, task, classes)
            if found is not None:
                return found
    kind = f' for {TASKS[task]}' if task else ''
    raise ValueError(f'{root} has no known layout{kind}; known are:{LAYOUTS}')


def _divide(items: Sequence) -> tuple[list, list]:
    """Split items 80 to 20, at random with a fixed seed."""
    if len(items) < 2:
        raise ValueError(f'{len(items)} labelled images: expected 2 or more')
    items = random.Random(0).sample(items, len(items))
    number = max(1, len(items) // 5)
    return sorted(items[number:]), sorted(items[:number])


def _check_names(given: list[str], classes: list[str]) -> None:
    ok = not given or sorted(given) == sorted(classes)
    check(ok, '--classes', given, f'none, or the classes of the data, {classes}')


def _read_pairs(
    root: Path, task: str | None, classes: list[str]
) -> LabelledFolder | None:
    """Read images with masks or depth maps."""
    folders, notes = _folders_of_pairs(root), []
    found = {s: _match(root / i, root / j, notes) for s, (i, j) in folders.items()}
    suffixes = {pair for names in found.values() for pair in names.values()}
    if len(suffixes) > 1:
        raise ValueError(
            f'{root} has images and labels with the suffixes {sorted(suffixes)}: '
            'expected one for all images and one for all labels'
        )
    if not suffixes or not found['train']:
        return None
    ((image_suffix, label_suffix),) = suffixes
    pairs = [
        (root / images / (stem + image_suffix), root / labels / (stem + label_suffix))
        for split, (images, labels) in folders.items()
        for stem in found[split]
    ]
    stems = {split: [*names] for split, names in found.items()}
    if 'val' not in stems:
        stems['train'], stems['val'] = _divide(stems['train'])
        folders['val'] = folders['train']
    splits = {}
    for split, (images, labels) in folders.items():
        prefix = dict(img_path=images, seg_map_path=labels)
        part = stems[split]
        splits[split] = Split(len(part), dict(data_prefix=prefix), part)
    with opened(pairs[0][1]) as first:
        task = task or ('depth' if first.mode.startswith('I') else 'seg')
    result = LabelledFolder(root, task, splits, classes, notes=notes)
    result.facts = dict(image_suffix=image_suffix, label_suffix=label_suffix)
    (_fill_masks if task == 'seg' else _fill_depth)(result, pairs)
    return result


def _folders_of_pairs(root: Path) -> dict[str, Sequence[str]]:
    """Return the image and label folders of every split, relative to the root."""
    for pair in product(IMAGE_DIRS, LABEL_DIRS):
        for form in ('{0}/{1}', '{1}/{0}'):
            folders = {
                split: [form.format(name, folder) for name in pair]
                for split, options in SPLITS.items()
                for folder in options[::-1]  # so that the first option wins
                if all((root / form.format(name, folder)).is_dir() for name in pair)
            }
            if 'train' in folders:
                return folders
        if all((root / name).is_dir() for name in pair):
            return dict(train=pair)
    return {}


def _match(images: Path, labels: Path, notes: list[str]) -> dict[str, tuple[str, str]]:
    """Return suffixes of image and label by stem; 1_mask.png may belong to 1.jpg."""
    image, label = (
        {str(p.relative_to(x).with_suffix('')): p.suffix for p in find_images(x)}
        for x in (images, labels)
    )
    tail = ''
    if not image.keys() & label.keys():
        few = list(image)[:50]
        tails = Counter(k[len(s) :] for s in few for k in label if k.startswith(s))
        tail = tails.most_common(1)[0][0] if tails else ''
    both = [stem for stem in image if stem + tail in label]
    without = sorted(image.keys() - {*both})
    notes += note(f'images in {images} without a label, left out', without)
    return {stem: (image[stem], tail + label[stem + tail]) for stem in both}


def _read_label(image: Path, label: Path) -> tuple[Size, np.ndarray]:
    size = read_size(image)
    with opened(label) as file:
        mode, pixels = file.mode, np.asarray(file)
    if mode not in MASK_MODES or file.format == 'JPEG':
        raise ValueError(
            f'{label} is a {file.format} of mode {mode}: expected a PNG of one channel '
            'that holds the number of a class, or a depth, in every pixel'
        )
    if pixels.shape != size:
        expected = f'expected {size} as its image has'
        raise ValueError(f'{label} has {pixels.shape} pixels: {expected}')
    return size, pixels


def _fill_masks(result: LabelledFolder, pairs: list[tuple[Path, Path]]) -> None:
    last = len(result.classes) - 1

    def read(image: Path, label: Path) -> tuple[Size, Counter]:
        size, pixels = _read_label(image, label)
        values, numbers = (x.tolist() for x in np.unique(pixels, return_counts=True))
        wrong = [x for x in values if last < x != IGNORED]
        if result.classes and wrong:
            raise ValueError(
                f'{label} has the labels {wrong[:5]}: expected 0 to {last}, for '
                f'{last + 1} classes, or {IGNORED} for none (option: --classes)'
            )
        return size, Counter(dict(zip(values, numbers, strict=True)))

    found = read_all(read, pairs)
    total = sum((numbers for _, numbers in found), Counter())
    labels = sorted(total.keys() - {IGNORED})
    if IGNORED in total and labels in ([], [0]):
        raise ValueError(
            f'{pairs[0][1].parent} has the labels {sorted(total)}, and {IGNORED} is '
            'for pixels without a class: set object pixels to 1, as in '
            'docs/tutorials/own_data.md'
        )
    if not result.classes and (len(labels) < 2 or labels != [*range(len(labels))]):
        raise ValueError(
            f'{pairs[0][1].parent} has the labels {sorted(total)[:10]}: expected 0, 1, '
            f'2 and so on, and {IGNORED} for pixels without a class; if some classes '
            'have no pixel, name all (option: --classes)'
        )
    result.classes = result.classes or [f'class_{i}' for i in labels]
    result.sizes = Counter(size for size, _ in found)
    result.counts = [total[i] for i in range(len(result.classes))]
    unused = [name for i, name in enumerate(result.classes) if not total[i]]
    result.notes += note('classes without a pixel', unused)


def _fill_depth(result: LabelledFolder, pairs: list[tuple[Path, Path]]) -> None:
    _check_names(result.classes, [])

    def read(image: Path, label: Path) -> tuple[Size, list[float]]:
        size, pixels = _read_label(image, label)
        if pixels.dtype in (np.uint8, bool):
            raise ValueError(f'{label} has 8 bits: expected a depth map of 16 bits')
        valid = pixels[pixels > 0]
        return size, np.quantile(valid, [0, 0.5, 1]).tolist() if valid.size else []

    found = read_all(read, pairs)
    if not (depths := [depth for _, depth in found if depth]):
        raise ValueError(f'{pairs[0][1].parent} has no depth map with a depth above 0')
    low, middle, high = zip(*depths, strict=True)
    result.facts['depths'] = min(low), median(middle), max(high)
    result.sizes = Counter(size for size, _ in found)


def _read_classes(
    root: Path, task: str | None, given: list[str]
) -> LabelledFolder | None:
    """Read one folder of images per class."""
    folders = {s: n for s, x in SPLITS.items() for n in x[::-1] if (root / n).is_dir()}
    folders = folders if 'train' in folders else dict(train='')
    files = {}
    for split, folder in folders.items():
        inside = sorted(p for p in (root / folder).iterdir() if p.is_dir())
        images = {path.name: [*find_images(path)] for path in inside}
        files[split] = {name: found for name, found in images.items() if found}
    classes = [*files['train']]
    stems = {frozenset(p.stem for p in paths) for paths in files['train'].values()}
    if len(classes) < 2 or len(stems) < 2:  # equal stems: images and labels
        return None
    for split, found in files.items():
        other = sorted({*found} ^ {*classes})
        if other:
            raise ValueError(
                f'{root / folders[split]} differs from the training images in the '
                f'classes {other[:5]}: expected the same classes'
            )
    _check_names(given, classes)
    if len(files) == 1:
        folders['val'] = folders['train']
        parts = {name: _divide(paths) for name, paths in files['train'].items()}
        files = {s: {n: p[i] for n, p in parts.items()} for i, s in enumerate(SPLITS)}
    splits = {}
    for split, found in files.items():
        base, named = root / folders[split], enumerate(found.values())
        lines = [f'{p.relative_to(base)} {i}' for i, paths in named for p in paths]
        splits[split] = Split(len(lines), dict(data_prefix=folders[split]), lines)
    counts = [sum(len(found[name]) for found in files.values()) for name in classes]
    paths = [(p,) for found in files.values() for some in found.values() for p in some]
    sizes = Counter(read_all(read_size, paths))
    return LabelledFolder(root, 'cls', splits, classes, counts, sizes)


def _read_yolo(root: Path, task: str | None, given: list[str]) -> LabelledFolder | None:
    for path in sorted([*root.glob('*.yaml'), *root.glob('*.yml')]):
        if contents := yolo_to_coco(path):
            found = {split: (c, '.', None) for split, c in contents.items()}
            return _read_objects(root, found, given)
    return None


def _read_coco(
    root: Path, task: str | None, given: list[str], skipped: set[Path]
) -> LabelledFolder | None:
    contents = {}
    for path in sorted({*root.glob('*.json'), *root.glob('*/*.json')} - skipped):
        name = re.search('train|val|test', str(path.relative_to(root)).lower())
        split = name[0] if name else 'train'
        # COCO itself also contains files of captions and keypoints.
        if split not in contents or path.name.startswith('instances'):
            try:
                content = json.loads(path.read_text())
            except ValueError as error:
                raise ValueError(f'{path} is no JSON: {error}') from error
            if _is_coco(content):
                folder = _folder_of_images(root, path, split, content['images'])
                contents[split] = content, folder, path
    if 'test' in contents:
        contents.setdefault('val', contents.pop('test'))
    return _read_objects(root, contents, given) if 'train' in contents else None


def _is_coco(content: Any) -> bool:
    """Return whether an annotation file contains images and boxes."""
    some = isinstance(content, dict) and content.get('annotations')
    some = some and content.get('images') and 'categories' in content
    return bool(some) and 'bbox' in content['annotations'][0]


def _folder_of_images(root: Path, path: Path, split: str, images: list[dict]) -> str:
    """Return the base folder of the file names, relative to the root."""
    names = [image['file_name'] for image in images]
    depth, missing = len(Path(names[0]).parts), names
    hits = [p for p in root.rglob(Path(names[0]).name) if str(p).endswith(names[0])]
    folders = [os.path.relpath(hit.parents[depth - 1], root) for hit in hits]
    # Splits may share file names: try the folders named after this split first.
    for folder in sorted(folders, key=lambda name: split not in name):
        missing = [name for name in names if not (root / folder / name).is_file()]
        if not missing:
            return folder
    raise ValueError(
        f'{path} names {len(missing)} images that are not in {root}: {missing[:3]}'
    )


def _read_objects(
    root: Path, contents: dict[str, tuple[dict, str, Path | None]], given: list[str]
) -> LabelledFolder:
    """Check the COCO dict, image folder and annotation file of every split."""
    names = _names(contents['train'][0])
    _check_names(given, [*names.values()])
    objects, sizes, notes = [], Counter(), []
    for split, (content, folder, path) in contents.items():
        images = {image['id']: image for image in content['images']}
        _check_objects(path or split, content, images, names)
        if path is not None:
            read_all(_check_size, [(root / folder, image) for image in images.values()])
        sizes.update((image['height'], image['width']) for image in images.values())
        objects += [(images[x['image_id']], x) for x in content['annotations']]
        seen = {x['image_id'] for x in content['annotations']}
        empty = [image['file_name'] for i, image in images.items() if i not in seen]
        notes += note(f'{split} images without an object', empty)
    counts = Counter(names[x['category_id']] for _, x in objects)
    facts = dict(
        with_mask=all(x.get('segmentation') for _, x in objects),
        share=median(_share(*pair) for pair in objects),
        most=max(Counter(id(image) for image, _ in objects).values()),
    )
    _check_apart(root, contents)
    if 'val' not in contents:
        content, folder, _ = contents['train']
        parts = _divide([image['id'] for image in content['images']])
        for split, ids in zip(SPLITS, parts, strict=True):
            contents[split] = _part(content, {*ids}), folder, None
    splits = {}
    for split, (content, folder, path) in contents.items():
        data = dict(ann_file=str(path)) if path else {}
        data['data_prefix'] = dict(img=folder)
        splits[split] = Split(len(content['images']), data, None if path else content)
    numbers = [counts[name] for name in names.values()]
    parts = [*names.values()], numbers, sizes, notes, facts
    return LabelledFolder(root, 'det', splits, *parts)


def _check_apart(
    root: Path, contents: dict[str, tuple[dict, str, Path | None]]
) -> None:
    """Raise if splits have an image in common."""
    seen: dict[str, Path | str] = {}
    for split, (content, folder, path) in contents.items():
        names = [image['file_name'] for image in content['images']]
        found = {os.path.normpath(root / folder / name) for name in names}
        if both := sorted(found & seen.keys()):
            raise ValueError(
                f'{seen[both[0]]} and {path or split} have {len(both)} images in '
                f'common, such as {both[0]}: expected others for validation'
            )
        seen |= dict.fromkeys(found, path or split)


def _share(image: dict, annotation: dict) -> float:
    """Return the root of a box's area as a fraction of the longer image side."""
    *_, width, height = annotation['bbox']
    return (width * height) ** 0.5 / max(image['height'], image['width'])


def _names(content: dict) -> dict[int, str]:
    """Return the categories in the order of the file, by which mmdet labels them."""
    return {c['id']: c['name'] for c in content['categories']}


def _part(content: dict, ids: set) -> dict:
    """Return a COCO dict restricted to some images."""
    images = [x for x in content['images'] if x['id'] in ids]
    objects = [x for x in content['annotations'] if x['image_id'] in ids]
    return dict(content, images=images, annotations=objects)


def _check_objects(
    where: Any, content: dict, images: dict, names: dict[int, str]
) -> None:
    found, objects = _names(content), content['annotations']
    if [*found.items()] != [*names.items()]:
        expected = f'expected {names}, in this order'
        raise ValueError(f'{where} has the categories {found}: {expected}')
    for x in objects:
        lacking = sorted(COCO_KEYS - x.keys())
        if lacking or x['image_id'] not in images or x['category_id'] not in names:
            raise ValueError(
                f'{where} has an annotation {str(x)[:120]}: expected the keys '
                f'{lacking}, too, an id of an image and one of {names}'
            )


def _check_size(folder: Path, image: dict) -> None:
    path, size = folder / image['file_name'], (image['height'], image['width'])
    found = read_size(path)
    if found != size:
        raise ValueError(f'{path} has {found} pixels: expected {size} by its JSON file')
