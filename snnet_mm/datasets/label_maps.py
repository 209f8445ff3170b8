"""Read folders of images with masks or depth maps."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from statistics import median

import numpy as np

from snnet_mm.utils import check

from .image_files import (
    SUFFIXES,
    ImageFacts,
    image_notes,
    note,
    opened,
    read_all,
    read_image,
    unread,
)
from .labelled_folder import (
    IMAGE_DIRS,
    LabelledFolder,
    Split,
    choose_splits,
    divide,
    find_parts,
    in_both,
    relative_names,
)

MASK_DIRS = (
    *('masks', 'mask', 'labels', 'label', 'annotations', 'ann_dir'),
    *('segmentationclass', 'segmentationclasspng'),
    *('gt', 'gtfine', 'gtcoarse', 'groundtruth', 'targets'),
)
DEPTH_DIRS = 'depth', 'depths', 'depth_maps', 'sync_depth', 'labels', 'gt', 'masks'
LISTS = '.', 'splits', 'ImageSets/Segmentation'  # folders of train.txt and val.txt
# Cityscapes has several label maps of an image: those to prefer, by their names.
TAILS = '_labelTrainIds', '_labelIds'
IGNORED = 255  # label of pixels without a class
MASK_MODES = {'1', 'L', 'P', 'I', 'I;16', 'I;16B', 'I;16L', 'I;16N'}
FULL = 2**16 - 1  # often marks missing depth
SHALLOW = 100  # units of depth maps, in millimetres, that cannot be all
# Words, numbers and separators of a name; leftImg8bit is one word, img1 is two.
WORD = re.compile(r'[^\W\d_]+(?:\d+[^\W\d_]+)*|\d+|[\W_]')
Pair = tuple[Path, Path]  # image and label


def read_pairs(root: Path, task: str, classes: list[str]) -> LabelledFolder | None:
    """Read images with masks or depth maps."""
    check(task == 'seg' or not classes, '--classes', classes, 'none for depth maps')
    notes: list[str] = []
    found = _find(root, MASK_DIRS if task == 'seg' else DEPTH_DIRS, notes)
    if found is None:
        return None
    pairs = {
        split: _match(images, labels, root, notes)
        for split, (images, labels) in choose_splits(found, root, notes).items()
    }
    if 'val' not in pairs:
        pairs = _listed(root, pairs['train'], notes) or dict(
            zip(('train', 'val'), divide(pairs['train']), strict=True)
        )
    splits, key = {}, 'seg_map_path' if task == 'seg' else 'depth_map_path'
    for split, files in pairs.items():
        (images, names), (labels, others) = (
            relative_names(paths, root) for paths in zip(*files, strict=True)
        )
        lines = ['\t'.join(pair) for pair in zip(names, others, strict=True)]
        prefix = {'img_path': images, key: labels}
        splits[split] = Split(len(lines), dict(data_prefix=prefix), lines)
    notes += in_both(*([image for image, _ in pairs[s]] for s in ('train', 'val')))
    every = [*dict.fromkeys(pairs['train'] + pairs['val'])]
    read = _read_mask if task == 'seg' else _read_depth
    found = read_all(read, [(*pair, len(classes)) for pair in every])
    facts = {image: fact for (image, _), (fact, _) in zip(every, found, strict=True)}
    contents = {label: x for (_, label), (_, x) in zip(every, found, strict=True)}
    result = LabelledFolder(root, task, splits, classes, notes=notes)
    (_take_masks if task == 'seg' else _take_depths)(result, contents)
    result.sizes = Counter(fact.size for fact in facts.values())
    # Masks of the wrong shape show orientations from 5 on.
    result.notes += image_notes(facts, turned=(2, 3, 4))
    return result


def _find(
    root: Path, label_dirs: Iterable[str], notes: list[str]
) -> dict[str, tuple[dict, dict]] | None:
    """Return images and labels of every split, by what their names may share."""
    files: dict[str, dict[str, dict[str, Path]]] = {}
    for path, split, folder, name in find_parts(root, SUFFIXES):
        part = files.setdefault(folder.lower(), {}).setdefault(split, {})
        if name in part:
            raise ValueError(
                f'{root} has {part[name]} and {path}: expected one file for every name'
            )
        part[name] = path
    image = next((files[name] for name in IMAGE_DIRS if name in files), {})
    label = next((files[name] for name in label_dirs if name in files), {})
    for split in sorted(image.keys() ^ label.keys()) if image and label else ():
        what = split or 'what has no split'
        notes.append(f'{what} of the images or labels has no partner: left out')
    found = {s: (image[s], label[s]) for s in image if s in label}
    notes += unread(root) if found else []
    return found if {'', 'train'} & found.keys() else None


def _match(
    images: Mapping[str, Path], labels: dict[str, Path], root: Path, notes: list[str]
) -> list[Pair]:
    """Return images with their labels, of equal names or of equal cores of names."""
    for tail in TAILS:
        labels = {n: p for n, p in labels.items() if n.endswith(tail)} or labels
    equal = {name: name for name in images.keys() & labels.keys()}
    image_cores, label_cores = _cores(images), _cores(labels)
    cores = image_cores.keys() & label_cores.keys()
    similar = {image_cores[core]: label_cores[core] for core in cores}
    partner = max(equal, similar, key=len)
    if not partner:
        raise ValueError(
            f'no image of {root}, such as {min(images.values())}, has a label, such as '
            f'{min(labels.values())}: expected one label for every image, of an equal '
            'name, or of one with words before or after it that all images or labels '
            'share'
        )
    without = sorted(images.keys() - partner.keys())
    unused = sorted(labels.keys() - {*partner.values()})
    notes += note(f'images of {root} without a label, left out', without)
    notes += note(f'labels of {root} without an image, left out', unused)
    return sorted((images[i], labels[j]) for i, j in partner.items())


def _cores(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return names by their folder and what is left without the words that all share.

    Shared are words at the beginning or end, such as of ``img_1`` or ``1_mask``. From a
    number on they belong to the core.
    """
    words = {name: WORD.findall(name.rpartition('/')[2]) for name in names}
    begin, end = (
        len([*takewhile(lambda word: not word.isdigit(), os.path.commonprefix(some))])
        for some in ([*words.values()], [w[::-1] for w in words.values()])
    )
    cores = {name: ''.join(w[begin : len(w) - end]) for name, w in words.items()}
    return {(os.path.dirname(n), core): n for n, core in cores.items() if core}


def _listed(
    root: Path, pairs: list[Pair], notes: list[str]
) -> dict[str, list[Pair]] | None:
    """Return the pairs of the splits that train.txt and val.txt list, if both exist."""
    for folder in LISTS:
        files = {split: root / folder / f'{split}.txt' for split in ('train', 'val')}
        if all(file.is_file() for file in files.values()):
            break
    else:
        return None
    found, known = {}, {image.stem for image, _ in pairs}
    for split, file in files.items():
        text = file.read_text(encoding='utf-8-sig')
        stems = {Path(name).stem for name in re.findall(r'^\s*(\S+)', text, re.M)}
        found[split] = [pair for pair in pairs if pair[0].stem in stems]
        missing = sorted(stems - known)
        notes += note(f'names in {file} are of no image with a label', missing)
        check(found[split], str(file), missing[:3], 'names of images with labels')
    return found


def _read_label(image: Path, label: Path) -> tuple[ImageFacts, np.ndarray]:
    facts = read_image(image)
    with opened(label) as file:
        mode, pixels = file.mode, np.asarray(file)
    if mode not in MASK_MODES or file.format == 'JPEG':
        raise ValueError(
            f'{label} is a {file.format} of mode {mode}: expected a PNG of one channel '
            'that holds the number of a class, or a depth, in every pixel; '
            'tools/dataset_converters/color_masks.py converts colours'
        )
    if pixels.shape != facts.size:
        expected = f'expected {facts.size} as its image has'
        turned = ' by its EXIF orientation' * (facts.orientation >= 5)
        raise ValueError(f'{label} has {pixels.shape} pixels: {expected}{turned}')
    return facts, pixels.astype(np.uint8) if mode == '1' else pixels


def _read_mask(
    image: Path, label: Path, num_classes: int
) -> tuple[ImageFacts, Counter[int]]:
    """Return facts of the image, and the number of pixels of every label."""
    facts, pixels = _read_label(image, label)
    values, numbers = (x.tolist() for x in np.unique(pixels, return_counts=True))
    end = num_classes or IGNORED
    if wrong := [x for x in values if not 0 <= x < end and x != IGNORED]:
        raise ValueError(
            f'{label} has the labels {wrong[:5]}: expected 0 to {end - 1}, or '
            f'{IGNORED} for none (option: --classes)'
        )
    return facts, Counter(dict(zip(values, numbers, strict=True)))


def _take_masks(result: LabelledFolder, numbers: Mapping[Path, Counter[int]]) -> None:
    """Check and add the classes, given the number of pixels of every label."""
    allowed = f'at most {IGNORED}: label maps have 8 bits, and {IGNORED} is ignored'
    number = len(result.classes)
    check(number <= IGNORED, '--classes', f'{number} names', allowed)
    total = sum(numbers.values(), Counter())
    labels = sorted(total.keys() - {IGNORED})
    where = min(numbers).parent
    if IGNORED in total and labels in ([], [0]):
        raise ValueError(
            f'{where} has the labels {sorted(total)}, and {IGNORED} is for pixels '
            'without a class: set object pixels to 1, as in docs/tutorials/own_data.md'
        )
    if not result.classes and (len(labels) < 2 or labels != [*range(len(labels))]):
        raise ValueError(
            f'{where} has the labels {sorted(total)[:10]}: expected 0, 1, 2 and so on, '
            f'and {IGNORED} for pixels without a class; if some classes have no pixel, '
            'name all (option: --classes)'
        )
    result.classes = result.classes or [f'class_{i}' for i in labels]
    result.counts = [total[i] for i in range(len(result.classes))]
    unused = [name for i, name in enumerate(result.classes) if not total[i]]
    ignored = [path.name for path, found in numbers.items() if found[IGNORED]]
    share = f'{total[IGNORED] / total.total():.1%} of all pixels'
    result.notes += note('classes without a pixel', unused)
    result.notes += note(f'masks have the label {IGNORED}, ignored ({share})', ignored)


def _read_depth(
    image: Path, label: Path, num_classes: int
) -> tuple[ImageFacts, list[float]]:
    """Return facts of the image, and minimum, median and maximum depth if any."""
    facts, pixels = _read_label(image, label)
    if pixels.dtype == np.uint8:
        raise ValueError(f'{label} has 8 bits: expected a depth map of 16 bits')
    valid = pixels[pixels > 0]
    return facts, np.quantile(valid, [0, 0.5, 1]).tolist() if valid.size else []


def _take_depths(result: LabelledFolder, depths: Mapping[Path, list[float]]) -> None:
    """Check and add the range of depths."""
    where, some = min(depths).parent, [depth for depth in depths.values() if depth]
    if not some:
        raise ValueError(f'{where} has no depth map with a depth above 0')
    low, middle, high = zip(*some, strict=True)
    if max(high) < SHALLOW:
        raise ValueError(
            f'{where} has values of {max(high):g} at most: expected depths in '
            'millimetres; masks of classes are --task seg'
        )
    result.facts['depths'] = min(low), median(middle), max(high)
    full = [path.name for path, depth in depths.items() if FULL in depth]
    empty = [path.name for path, depth in depths.items() if not depth]
    what = f'depth maps reach {FULL}, the highest value of 16 bits, trained as a depth '
    what += 'of 65.5 m; where it marks missing depth, write 0'
    result.notes += note(what, full) + note('depth maps without a depth above 0', empty)
