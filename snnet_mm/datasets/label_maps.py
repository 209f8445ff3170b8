"""Read folders of images with masks or depth maps."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from snnet_mm.utils import check

from .image_files import (
    ImageFacts,
    find_images,
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
    check_names,
    choose_splits,
    divide,
    in_both,
    splits_among,
    subfolders,
)

MASK_DIRS = (
    *(
        'masks',
        'mask',
        'labels',
        'label',
        'annotations',
        'ann_dir',
        'segmentationclass',
    ),
    *('segmentationclasspng', 'gt', 'gtfine', 'gtcoarse', 'groundtruth', 'targets'),
)
DEPTH_DIRS = 'depth', 'depths', 'depth_maps', 'sync_depth', 'labels', 'gt', 'masks'
LISTS = '.', 'splits', 'ImageSets/Segmentation'  # folders of train.txt and val.txt
# Tails that are preferred if images have several label maps.
TAILS = '_labelTrainIds', '_labelIds'
IGNORED = 255  # label of pixels without a class
MASK_MODES = {'1', 'L', 'P', 'I', 'I;16', 'I;16B', 'I;16L', 'I;16N'}
FULL = 2**16 - 1  # often marks missing depth
SHALLOW = 100  # units of depth maps, in millimetres, that cannot be all
# Where a name may be cut into what all names share and the rest.
CUT = re.compile(r'(?<=[\W_])|(?=[\W_])|(?<=[^\W\d])(?=\d)|(?<=\d)(?=[^\W\d])')
Pair = tuple[Path, Path]  # image and label


def read_pairs(root: Path, task: str, classes: list[str]) -> LabelledFolder | None:
    """Read images with masks or depth maps."""
    notes: list[str] = []
    folders = _folders_of_pairs(root, MASK_DIRS if task == 'seg' else DEPTH_DIRS, notes)
    if not folders:
        return None
    folders = choose_splits(folders, root, notes)
    names = {s: _match(root / i, root / j, notes) for s, (i, j) in folders.items()}
    if 'val' not in names:
        folders['val'] = folders['train']
        names = _listed(root, names['train'], notes) or dict(
            zip(('train', 'val'), divide(names['train']), strict=True)
        )
    splits, pairs = {}, {}
    for split, (images, labels) in folders.items():
        key = 'seg_map_path' if task == 'seg' else 'depth_map_path'
        prefix = {'img_path': images, key: labels}
        lines = ['\t'.join(pair) for pair in names[split]]
        splits[split] = Split(len(lines), dict(data_prefix=prefix), lines)
        pairs[split] = [(root / images / i, root / labels / j) for i, j in names[split]]
    notes += in_both(*([image for image, _ in pairs[s]] for s in ('train', 'val')))
    result = LabelledFolder(root, task, splits, classes, notes=notes)
    fill = _fill_masks if task == 'seg' else _fill_depth
    fill(result, [*dict.fromkeys(pairs['train'] + pairs['val'])])
    return result


def _folders_of_pairs(
    root: Path, label_dirs: Sequence[str], notes: list[str]
) -> dict[str, tuple[str, str]]:
    """Return the image and label folders of every split, relative to the root."""
    for image, label in _candidates(root, label_dirs):
        outer = subfolders(root)
        pair = outer.get(image), outer.get(label)
        if None not in pair and _have_images(root, pair):
            inner = [splits_among(subfolders(root / name)) for name in pair]
            found = {
                s: tuple(f'{a}/{i[s]}' for a, i in zip(pair, inner, strict=True))
                for s in inner[0].keys() & inner[1].keys()
            }
            for split in sorted(inner[0].keys() ^ inner[1].keys()):
                notes.append(f'{split} of {" or ".join(pair)} has no partner: left out')
            return found if 'train' in found else dict(train=pair)
        found = {}
        for split, folder in splits_among(outer).items():
            inside = subfolders(root / folder)
            pair = inside.get(image), inside.get(label)
            if None not in pair and _have_images(root / folder, pair):
                found[split] = tuple(f'{folder}/{name}' for name in pair)
        if 'train' in found:
            return found
    return {}


def _candidates(root: Path, label_dirs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names of an image and a label folder, then those that their files tell."""
    yield from product(IMAGE_DIRS, label_dirs)
    train = splits_among(subfolders(root)).get('train', '.')
    for top in dict.fromkeys((root, root / train)):
        folders = [f for f in subfolders(top).values() if _have_images(top, [f])]
        kinds = {_is_label(next(find_images(top / f))): f.lower() for f in folders}
        if len(folders) == len(kinds) == 2:
            yield kinds[False], kinds[True]


def _have_images(top: Path, names: Sequence[str]) -> bool:
    return all(next(find_images(top / name), None) for name in names)


def _is_label(path: Path) -> bool:
    with opened(path) as file:
        return file.mode in MASK_MODES and file.format != 'JPEG'


def _stems(folder: Path) -> dict[str, str]:
    """Return the path of every image below a folder, by the path without suffix."""
    stems: dict[str, str] = {}
    for path in find_images(folder):
        name = path.relative_to(folder)
        stem = name.with_suffix('').as_posix()
        if stem in stems:
            raise ValueError(
                f'{folder} has {stems[stem]} and {name.as_posix()}: expected one file '
                'for every name'
            )
        stems[stem] = name.as_posix()
    return stems


def _match(images: Path, labels: Path, notes: list[str]) -> list[tuple[str, str]]:
    """Return paths of images and their labels, relative to their folders.

    Names may differ in a text before or after them that all names of a folder share,
    such as ``img_1`` and ``1_mask``.
    """
    image, label = _stems(images), _stems(labels)
    notes += unread(images, labels)
    partner = {stem: stem for stem in image.keys() & label.keys()}
    if len(partner) < len(image):
        partner = max(partner, _match_affixes([*image], [*label], labels), key=len)
    if not partner:
        raise ValueError(
            f'no image in {images}, such as {next(iter(image.values()))}, has a label '
            f'in {labels}, such as {next(iter(label.values()))}: expected equal names, '
            'or names with one text before or after them in all images or labels'
        )
    without = sorted(image.keys() - partner.keys())
    unused = sorted(label.keys() - {*partner.values()})
    notes += note(f'images in {images} without a label, left out', without)
    notes += note(f'labels in {labels} without an image, left out', unused)
    return sorted((image[i], label[j]) for i, j in partner.items())


def _match_affixes(images: list[str], labels: list[str], where: Path) -> dict[str, str]:
    """Return the label of every image, with the shortest affixes that match most."""
    some = images[:: max(1, len(images) // 50)]
    options = product(*(_affixes(labels, last, 0.1) for last in (False, True)))
    cut_labels = {ends: _cut(labels, *ends) for ends in options}
    best: dict[tuple[str, ...], tuple] = {}
    for ends in product(*(_affixes(images, last, 0.9) for last in (False, True))):
        cut_images = _cut(some, *ends)
        for label_ends, found in cut_labels.items():
            both = tuple(
                sorted(found[core] for core in cut_images.keys() & found.keys())
            )
            rank = len(''.join(ends + label_ends)), ends, label_ends
            best[both] = min(best.get(both, rank), rank)
    most = max(map(len, best))
    ranked = sorted(rank for both, rank in best.items() if len(both) == most > 0)
    preferred = [r for tail in TAILS for r in ranked if r[2][1].endswith(tail)]
    if len(ranked) > 1 and not preferred:
        tails = sorted({'...'.join(ends) for *_, ends in ranked})
        raise ValueError(
            f'{where} has several labels for one image, named {tails}: expected one '
            'for every image; move the others away'
        )
    if not ranked:
        return {}
    _, ends, label_ends = (preferred + ranked)[0]
    cut, found = _cut(images, *ends), cut_labels[label_ends]
    return {stem: found[core] for core, stem in cut.items() if core in found}


def _affixes(stems: list[str], last: bool, share: float) -> list[str]:
    """Return beginnings or ends of file names that at least a share of them has."""
    counts: Counter[str] = Counter()
    some = stems[:: max(1, len(stems) // 100)]
    for name in (stem.rpartition('/')[2] for stem in some):
        cuts = {match.start() for match in CUT.finditer(name)} - {0, len(name)}
        counts.update(name[i:] if last else name[:i] for i in cuts)
    shared = [a for a, n in counts.most_common(12) if n > 1 and n >= share * len(some)]
    return ['', *shared]


def _cut(stems: list[str], begin: str, end: str) -> dict[tuple[str, str], str]:
    """Return the stems that have both affixes, by folder and what is between them."""
    found = {}
    for stem in stems:
        folder, _, name = stem.rpartition('/')
        if name.startswith(begin) and name.endswith(end):
            core = name[len(begin) : len(name) - len(end)]
            if core:
                found[folder, core] = stem
    return found


def _listed(
    root: Path, pairs: list[tuple[str, str]], notes: list[str]
) -> dict[str, list] | None:
    """Return the pairs of the splits that train.txt and val.txt list, if any."""
    for folder in LISTS:
        files = {split: root / folder / f'{split}.txt' for split in ('train', 'val')}
        if all(file.is_file() for file in files.values()):
            break
    else:
        return None
    by_stem = {Path(image).with_suffix('').as_posix(): (image, j) for image, j in pairs}
    found = {}
    for split, file in files.items():
        lines = file.read_text(encoding='utf-8-sig').split('\n')
        stems = [Path(line.split()[0]).stem for line in lines if line.strip()]
        found[split] = sorted(by_stem[stem] for stem in {*stems} & by_stem.keys())
        missing = sorted({*stems} - by_stem.keys())
        notes += note(f'names in {file} are of no image with a label', missing)
        check(found[split], str(file), stems[:3], 'names of images that have labels')
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


def _take_images(result: LabelledFolder, pairs: list[Pair], found: list[tuple]) -> None:
    """Add sizes and notes of the images."""
    facts = {image: fact for (image, _), (fact, *_) in zip(pairs, found, strict=True)}
    result.sizes = Counter(fact.size for fact in facts.values())
    # Masks of the wrong shape show orientations from 5 on.
    result.notes += image_notes(facts, turned=(2, 3, 4))


def _fill_masks(result: LabelledFolder, pairs: list[Pair]) -> None:
    last = len(result.classes) - 1
    allowed = f'at most {IGNORED}: label maps have 8 bits, and {IGNORED} is ignored'
    check(last < IGNORED, '--classes', f'{last + 1} names', allowed)

    def read(image: Path, label: Path) -> tuple[ImageFacts, Counter]:
        facts, pixels = _read_label(image, label)
        values, numbers = (x.tolist() for x in np.unique(pixels, return_counts=True))
        wrong = [x for x in values if not 0 <= x <= IGNORED]
        if wrong:
            raise ValueError(
                f'{label} has the labels {wrong[:5]}: expected 0 to {IGNORED - 1}, or '
                f'{IGNORED} for none, because training reads 8 bits'
            )
        wrong = [x for x in values if last < x != IGNORED]
        if result.classes and wrong:
            raise ValueError(
                f'{label} has the labels {wrong[:5]}: expected 0 to {last}, for '
                f'{last + 1} classes, or {IGNORED} for none (option: --classes)'
            )
        return facts, Counter(dict(zip(values, numbers, strict=True)))

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
    _take_images(result, pairs, found)
    result.counts = [total[i] for i in range(len(result.classes))]
    unused = [name for i, name in enumerate(result.classes) if not total[i]]
    result.notes += note('classes without a pixel', unused)
    ignored = [
        p.name for (_, p), (_, n) in zip(pairs, found, strict=True) if n[IGNORED]
    ]
    share = f'{total[IGNORED] / total.total():.1%} of all pixels'
    result.notes += note(f'masks have the label {IGNORED}, ignored ({share})', ignored)


def _fill_depth(result: LabelledFolder, pairs: list[Pair]) -> None:
    check_names(result.classes, [])

    def read(image: Path, label: Path) -> tuple[ImageFacts, list[float]]:
        facts, pixels = _read_label(image, label)
        if pixels.dtype == np.uint8:
            raise ValueError(f'{label} has 8 bits: expected a depth map of 16 bits')
        valid = pixels[pixels > 0]
        return facts, np.quantile(valid, [0, 0.5, 1]).tolist() if valid.size else []

    found = read_all(read, pairs)
    where = pairs[0][1].parent
    if not (depths := [depth for _, depth in found if depth]):
        raise ValueError(f'{where} has no depth map with a depth above 0')
    low, middle, high = zip(*depths, strict=True)
    if max(high) < SHALLOW:
        raise ValueError(
            f'{where} has values of {max(high):g} at most: expected depths in '
            'millimetres; masks of classes are --task seg'
        )
    result.facts['depths'] = min(low), median(middle), max(high)
    _take_images(result, pairs, found)
    full = [
        p.name
        for (_, p), (_, d) in zip(pairs, found, strict=True)
        if d and d[2] == FULL
    ]
    what = f'depth maps reach {FULL}, the highest value of 16 bits, trained as a depth '
    what += 'of 65.5 m; where it marks missing depth, write 0'
    result.notes += note(what, full)
    empty = [
        p.name for (_, p), (_, depth) in zip(pairs, found, strict=True) if not depth
    ]
    result.notes += note('depth maps without a depth above 0', empty)
