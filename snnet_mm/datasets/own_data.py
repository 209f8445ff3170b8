"""Read a folder of labelled images, in one layout per task."""

import os
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from snnet_mm.runtime.image_io import find_images, open_image
from snnet_mm.utils import check, digest

SPLITS = dict(
    train=('train', 'training'), val=('val', 'valid', 'validation'), test=('test',)
)
SPLIT_OF = {word: split for split, words in SPLITS.items() for word in words}
IGNORED = 255  # label of pixels without a class
MAP_MODES = {'1', 'L', 'P', 'I', 'I;16', 'I;16B', 'I;16L', 'I;16N'}
ORIENTATION = 0x0112  # EXIF tag; values from 5 on swap rows and columns


class Sample(NamedTuple):
    """An image; a class, the path of a label map, or a COCO entry and its objects."""

    image: Path
    label: Any
    size: tuple[int, int] | None = None  # height, width


Found = dict[str, list[Sample]]  # by split; '' is that of no name


@dataclass
class OwnData:
    """Labelled images of a folder.

    Attributes:
        root: The folder.
        task: Key of ``LAYOUTS``.
        classes: Class names, in the order of labels.
        splits: Of ``train`` and ``val``, the lines of an annotation file with paths
            relative to the root, or a dict in COCO's format.
        sizes: Height and width of every image.
        counts: Number of pixels, objects or images of every class.
        facts: Task-specific values, such as ``with_mask``.
        notes: Sentences on what is left out.
    """

    root: Path
    task: str
    classes: list[str]
    splits: dict[str, list[str] | dict] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def name_of(self, path: Path) -> str:
        """Return a path relative to the root."""
        return Path(os.path.relpath(path, self.root)).as_posix()

    def define_classes(self, names: Sequence[str]) -> None:
        """Set the classes of the data; raise if the user expects others."""
        ok = not self.classes or sorted(self.classes) == sorted(names)
        expected = f'no classes, or those of the data: {names}'
        check(ok, '--classes', self.classes, expected)
        self.classes = [*names]


def read_own_data(
    root: str | os.PathLike, task: str, classes: Sequence[str] = ()
) -> OwnData:
    """Read a folder; a fixed fifth of the images is for validation if none are.

    Args:
        root: The folder.
        task: Key of ``LAYOUTS``.
        classes: Class names of the labels in masks. Other layouts define their own.

    Raises:
        ValueError: If its layout is another one, or training would misread labels.
    """
    root = Path(root).expanduser().resolve()
    check(len({*classes}) == len(classes), '--classes', classes, 'different names')
    data, (layout, find, read) = OwnData(root, task, [*classes]), LAYOUTS[task]
    found = {split: some for split, some in find(data).items() if some}
    if not found:
        raise ValueError(
            f'{root} has no labelled images for --task {task}: expected {layout}; see '
            'docs/tutorials/own_data.md (argument: FOLDER)'
        )
    parts = _choose(data, found)
    _check_apart(*parts.values())
    for split, part in parts.items():
        part = sorted(part, key=lambda sample: sample.image)
        sizes = _map(_size_of, [sample.image for sample in part])
        parts[split] = [s._replace(size=x) for s, x in zip(part, sizes, strict=True)]
        data.sizes += sizes
    read(data, parts)
    return data


def _choose(data: OwnData, found: Found) -> Found:
    """Return samples for training and validation, on a test split if necessary."""
    folders = [p for glob in ('*', '*/*') for p in data.root.glob(glob) if p.is_dir()]
    named = {_split_of(folder.name) for folder in folders} | found.keys()
    train = 'train' if 'train' in named else ''
    val = 'val' if 'val' in named else 'test' if 'test' in found else None
    for split in (train, val):
        if split is not None and split not in found:
            raise ValueError(f'{split or "train"} of {data.root} has no labelled image')
    if unused := sorted(found.keys() - {train, val}):
        data.notes.append(f'splits left out: {", ".join(s or "none" for s in unused)}')
    if val is not None:
        return dict(train=found[train], val=found[val])
    return _divide(data, found[train])


def _divide(data: OwnData, samples: Iterable[Sample]) -> Found:
    """Split samples 80 to 20, within every class folder, by their names alone."""
    groups: dict[str, list[tuple[float, Sample]]] = defaultdict(list)
    for sample in samples:
        draw = random.Random(data.name_of(sample.image)).random()
        groups[sample.label if data.task == 'cls' else ''].append((draw, sample))
    parts: Found = dict(train=[], val=[])
    for group in groups.values():
        if len(group) < 2:
            raise ValueError(
                f'{group[0][1].image} is the only image to split into training and '
                'validation: expected 2 or more'
            )
        drawn = [sample for _, sample in sorted(group, key=lambda x: x[0])]
        number = max(1, len(group) // 5)
        parts['train'] += drawn[number:]
        parts['val'] += drawn[:number]
    return parts


def _check_apart(train: Sequence[Sample], val: Sequence[Sample]) -> None:
    """Raise if an image is for training and for validation, under any name."""
    lengths = {sample.image.stat().st_size for sample in val}
    some = [s.image for s in train if s.image.stat().st_size in lengths]
    seen = {digest([path.read_bytes()]): path for path in some}
    for path in [sample.image for sample in val if seen]:
        if other := seen.get(digest([path.read_bytes()])):
            raise ValueError(
                f'{path} for validation and {other} for training are one image: '
                'remove one of them'
            )


def _map(read: Callable, items: Iterable) -> list:
    with ThreadPoolExecutor() as pool:
        return [*pool.map(read, items)]


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image; raise a ValueError with its path if it cannot be decoded."""
    try:
        with open_image(path) as image:
            yield image
    except ValueError as error:
        raise ValueError(f'{path} cannot be read: {error}') from error


def _size_of(path: Path) -> tuple[int, int]:
    """Return height and width of an image as training loads it."""
    with _opened(path) as image:
        deep = image.mode[0] in 'IF' or ';16' in str(image.tile)
        orientation = image.getexif().get(ORIENTATION, 1)  # may decode the image
    if deep:
        raise ValueError(
            f'{path} has more than 8 bits per channel, of which training reads the '
            'upper 8 and the runtime none: scale its values to 8 bits'
        )
    turned = orientation >= 5 and image.format != 'WEBP'  # which OpenCV does not turn
    return image.size if turned else image.size[::-1]


def _split_of(name: str) -> str:
    """Return the split that a folder is named after, with or without a year, or ''."""
    return SPLIT_OF.get(re.sub(r'\d+$', '', name.lower()), '')


def _walk(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield every image with its split, its folder, and the rest of its name.

    The split, empty if there is none, may be inside or around the folder: ``train/cat``
    or ``cat/train``. The rest has no suffix, but the names of further folders.
    """
    for path in find_images(root):
        *folders, name = path.relative_to(root).with_suffix('').parts
        split = next(filter(_split_of, folders[:2]), '')
        folder, *inside = [f for f in folders if f != split] or ['']
        yield path, _split_of(split), folder, '/'.join([*inside, name])


def _find_pairs(data: OwnData, folder: str) -> Found:
    """Return the images in ``images`` with the label maps of equal names."""
    files: dict[str, dict] = {'images': {}, folder: {}}
    for path, split, name, rest in _walk(data.root):
        if name in files:
            files[name][split, rest] = path
    images, maps = files.values()
    found: Found = defaultdict(list)
    for key in sorted(images.keys() & maps.keys()):
        found[key[0]].append(Sample(images[key], maps[key]))
    if alone := sorted((images | maps)[key] for key in images.keys() ^ maps.keys()):
        example = data.name_of(alone[0])
        data.notes.append(
            f'{len(alone)} files in images/ or {folder}/ are left out, as none has '
            f'their name in the other, such as {example}'
        )
    return found


def _read_map(sample: Sample) -> np.ndarray:
    """Return the label map ``(H, W)`` of an image."""
    with _opened(sample.label) as file:
        pixels = np.asarray(file)
    if file.mode not in MAP_MODES or file.format == 'JPEG':
        raise ValueError(
            f'{sample.label} is a {file.format} of mode {file.mode}: expected a PNG of '
            'one channel that holds the number of a class, or a depth, in every pixel; '
            'tools/dataset_converters/color_masks.py converts colours'
        )
    if pixels.shape != sample.size:
        raise ValueError(
            f'{sample.label} has {pixels.shape} pixels: expected {sample.size} as its '
            'image has, turned by its EXIF orientation if any'
        )
    return pixels.astype(np.uint8) if file.mode == '1' else pixels


def _count_labels(sample: Sample, end: int) -> Counter[int]:
    """Return the number of pixels of every label of a mask."""
    found = np.unique(_read_map(sample), return_counts=True)
    values = Counter(dict(zip(*(x.tolist() for x in found), strict=True)))
    if wrong := sorted(values.keys() - {*range(end), IGNORED}):
        raise ValueError(
            f'{sample.label} has the labels {wrong[:5]}: expected 0 to {end - 1}, or '
            f'{IGNORED} for none (option: --classes)'
        )
    return values


def _read_masks(data: OwnData, parts: Found) -> None:
    number = len(data.classes)
    expected = f'at most {IGNORED}; label maps have 8 bits, {IGNORED} is ignored'
    check(number <= IGNORED, '--classes', f'{number} names', expected)
    masks = [sample for part in parts.values() for sample in part]
    counted = _map(partial(_count_labels, end=number or IGNORED), masks)
    pixels = sum(counted, Counter())
    named = sorted(pixels.keys() - {IGNORED})
    if IGNORED in pixels and named == [0] and number == 2:
        named, pixels[1] = [0, 1], pixels.pop(IGNORED)
        data.facts['label_map'] = {IGNORED: 1}
        data.notes.append(f'{IGNORED} in masks is read as {data.classes[1]}')
    if (IGNORED in pixels and named in ([], [0])) or (
        not number and (len(named) < 2 or named != [*range(len(named))])
    ):
        raise ValueError(
            f'{masks[0].label.parent} has the labels {sorted(pixels)[:10]}: expected '
            f'0, 1, 2 and so on, or all names (option: --classes); {IGNORED} is for '
            'pixels without a class, unless masks have only 0 and 255 and --classes '
            'gives both a name'
        )
    data.classes = data.classes or [f'class_{i}' for i in named]
    data.counts.update({name: pixels[i] for i, name in enumerate(data.classes)})
    _list_pairs(data, parts)


def _depths_of(sample: Sample) -> list[int]:
    """Return the minimum and maximum of a depth map, if it has any depth."""
    pixels = _read_map(sample)
    if pixels.dtype == np.uint8:
        raise ValueError(f'{sample.label} has 8 bits: expected a depth map of 16 bits')
    valid = pixels[pixels > 0]
    return [int(valid.min()), int(valid.max())] if valid.size else []


def _read_depth(data: OwnData, parts: Found) -> None:
    check(not data.classes, '--classes', data.classes, 'no names for depth maps')
    depths = []
    for split, part in parts.items():
        some = sum(_map(_depths_of, part), [])
        if not some:
            raise ValueError(f'{split} of {data.root} has no depth above 0')
        depths += some
    data.facts['depths'] = min(depths), max(depths)
    _list_pairs(data, parts)


def _list_pairs(data: OwnData, parts: Found) -> None:
    for split, part in parts.items():
        pairs = (map(data.name_of, (sample.image, sample.label)) for sample in part)
        data.splits[split] = ['\t'.join(pair) for pair in pairs]


def _find_classes(data: OwnData) -> Found:
    found: Found = defaultdict(list)
    for path, split, name, _ in _walk(data.root):
        if name:
            found[split].append(Sample(path, name))
    names = {sample.label for part in found.values() for sample in part}
    return found if len(names) > 1 else {}


def _read_classes(data: OwnData, parts: Found) -> None:
    names, others = ({sample.label for sample in part} for part in parts.values())
    if names != others:
        raise ValueError(
            f'val of {data.root} differs from the training images in the classes '
            f'{sorted(names ^ others)[:5]}: expected the same classes'
        )
    data.define_classes(sorted(names))
    for split, part in parts.items():
        data.counts.update(sample.label for sample in part)
        data.splits[split] = [
            f'{data.name_of(sample.image)} {data.classes.index(sample.label)}'
            for sample in part
        ]


def _find_objects(data: OwnData) -> Found:
    """Return images with the objects of COCO's files, or else of YOLO's."""
    patterns = 'annotations/*.json', '*/_annotations.coco.json'  # also Roboflow's
    files = sorted(path for pattern in patterns for path in data.root.glob(pattern))
    # COCO itself also contains files of keypoints and captions.
    files = [f for f in files if f.name.startswith('instances')] or files
    found: Found = {}
    for path in files:
        words = re.findall('[a-z]+', f'{path.parent.name} {path.stem}'.lower())
        split = next((SPLIT_OF[word] for word in words if word in SPLIT_OF), '')
        if split in found:
            raise ValueError(
                f'{path} is another file of {split or "no split"}: expected one for '
                'each, with train or val in its name'
            )
        folders = [*data.root.glob('*'), *data.root.glob('images/*')]
        folders = [f for f in folders if split and _split_of(f.name) == split]
        folders = [path.parent, *folders, data.root / 'images', data.root]
        found[split] = _read_coco(path, folders)
    return found if files else _find_yolo(data)


def _find_yolo(data: OwnData) -> Found:
    names = data.root / 'data.yaml'
    folders = sorted({path.parent for path in find_images(data.root)})
    found: Found = defaultdict(list)
    for folder in folders if names.is_file() else ():
        parts = folder.relative_to(data.root).parts
        if 'images' not in parts:
            continue
        import supervision  # an extra

        labels = data.root.joinpath(*('labels' if p == 'images' else p for p in parts))
        paths = map(str, (folder, labels, names))
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary, 'coco.json')
            content = supervision.DetectionDataset.from_yolo(*paths)
            content.as_coco(annotations_path=str(file))
            split = next(filter(None, map(_split_of, parts)), '')
            found[split] += _read_coco(file, [folder])
    return found


def _read_coco(path: Path, folders: Sequence[Path]) -> list[Sample]:
    """Return the images of a file in COCO's format, with their entries and objects.

    They are in the first of some folders that contains any of them.
    """
    from pycocotools.coco import COCO  # an extra

    try:
        with redirect_stdout(StringIO()):
            coco = COCO(str(path))
        names = {i: str(category['name']) for i, category in coco.cats.items()}
        unknown = coco.imgToAnns.keys() - coco.imgs.keys()
        if unknown or len(coco.imgs) < len(coco.dataset['images']):
            raise ValueError(f'image ids are unknown or twice {sorted(unknown)[:3]}')
        labels = [
            (image, [_complete(x, names) for x in coco.imgToAnns[i]])
            for i, image in coco.imgs.items()
        ]
        files = [image['file_name'] for image, _ in labels]
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not in COCO's format: {type(error).__name__} {error}"
        ) from error
    some = (f for f in folders if any((f / name).is_file() for name in files))
    folder = next(some, folders[0])
    if missing := [str(folder / n) for n in files if not (folder / n).is_file()]:
        raise ValueError(
            f'{path} names {len(missing)} images that do not exist: {missing[:3]}'
        )
    return [Sample(folder / n, label) for n, label in zip(files, labels, strict=True)]


def _complete(x: dict, names: dict[int, str]) -> dict:
    """Return an annotation with all that mmdet reads, and the name of its class."""
    left, top, width, height = map(float, x['bbox'])
    area, crowd = x.get('area') or width * height, x.get('iscrowd') or 0
    box = dict(bbox=[left, top, width, height], area=area, iscrowd=crowd)
    return x | box | dict(name=names[x['category_id']])


def _read_objects(data: OwnData, parts: Found) -> None:
    samples = [sample for part in parts.values() for sample in part]
    for image, (entry, _), size in samples:
        given = entry.get('height'), entry.get('width')
        if all(given) and given != size:
            raise ValueError(
                f'{image} has {size} pixels, turned by its EXIF orientation if any: '
                f'expected {given} as its annotation file says'
            )
    every = [x for sample in samples for x in sample.label[1]]
    outlined = [x for x in every if x.get('segmentation')]
    with_mask = len(outlined) * 2 > len(every)
    if with_mask and len(outlined) < len(every):
        number = len(every) - len(outlined)
        data.notes.append(f'{number} objects without an outline are left out')
    kept = outlined if with_mask else every
    # Names without an object, such as Roboflow's of the whole set, are no classes.
    ordered = sorted(kept, key=lambda x: x['category_id'])
    data.define_classes([*dict.fromkeys(x['name'] for x in ordered)])
    data.counts.update(x['name'] for x in kept if not x['iscrowd'])
    ids = {name: i for i, name in enumerate(data.classes, 1)}
    for split, part in parts.items():
        images, annotations = [], []
        for i, (image, (_, objects), (height, width)) in enumerate(part):
            name = data.name_of(image)
            images.append(dict(id=i, file_name=name, height=height, width=width))
            annotations += [
                x | dict(image_id=i, category_id=ids[x['name']])
                for x in objects
                if x.get('segmentation') or not with_mask
            ]
        if not annotations:
            raise ValueError(f'{split} of {data.root} has no object')
        for i, x in enumerate(annotations, 1):
            x['id'] = i  # pycocotools loses objects whose ids are equal or 0
        categories = [dict(id=i, name=name) for name, i in ids.items()]
        data.splits[split] = dict(images=images, categories=categories)
        data.splits[split]['annotations'] = annotations
    data.facts['with_mask'] = with_mask
    data.facts['share'] = median(
        max(0, x['bbox'][2] * x['bbox'][3]) ** 0.5 / max(sample.size)
        for sample in samples
        for x in sample.label[1]
    )
    data.facts['max_per_image'] = max(len(sample.label[1]) for sample in samples)


# Of every task, what a folder contains, and how its samples are found and read.
LAYOUTS: dict[str, tuple[str, Callable, Callable]] = dict(
    seg=(
        'images/ and masks/ with equal names',
        partial(_find_pairs, folder='masks'),
        _read_masks,
    ),
    depth=(
        'images/ and depth/ with equal names',
        partial(_find_pairs, folder='depth'),
        _read_depth,
    ),
    det=(
        "annotations/*.json in COCO's format, or data.yaml, images/ and labels/ in "
        "YOLO's",
        _find_objects,
        _read_objects,
    ),
    cls=('a folder of images for every class', _find_classes, _read_classes),
)
