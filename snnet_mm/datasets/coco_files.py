"""Read COCO's annotation files, and find the images that they name."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from .coco_objects import (
    choose_outlines,
    clean_objects,
    number_objects,
    unify_categories,
)
from .image_files import (
    ImageFacts,
    find_images,
    image_notes,
    note,
    read_all,
    read_image,
    unread,
)
from .labelled_folder import (
    IMAGE_DIRS,
    SPLIT_OF,
    SPLITS,
    Findings,
    LabelledFolder,
    Split,
    check_names,
    choose_splits,
    divide,
    in_both,
)

Contents = dict[str, tuple[dict, Any]]  # COCO dict and where it is from
KEYS = 'images', 'categories', 'annotations'
NO_SIZE = 'images have no size in their file: added'
ELSEWHERE = 'file names begin with folders that are not here, left out'


def read_coco(
    root: Path, given: list[str], skipped: set[Path]
) -> LabelledFolder | None:
    """Read annotation files in COCO's format.

    Args:
        root: The folder.
        given: Class names that the user expects.
        skipped: Files that are no part of the data.
    """
    findings, notes = Findings(), []
    found = choose_splits(_find_files(root, skipped), root, notes)
    if 'train' not in found:
        return None
    folders = {
        split: _place_images(root, path, split, content, findings)
        for split, (content, path) in found.items()
    }
    result = read_objects(root, found, folders, given, findings)
    result.notes = notes + result.notes
    for split, part in result.splits.items():
        _, path = found[split]
        if path is not None and part.annotations == _load(path):
            part.annotations = None
            part.dataset['ann_file'] = str(path)
    return result


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding='utf-8-sig'))
    except ValueError as error:
        raise ValueError(f'{path} is no JSON: {error}') from error


def _find_files(root: Path, skipped: set[Path]) -> Contents:
    """Return the COCO dict of every split, and its file."""
    found: dict[str, list] = {}
    for path in sorted({*root.glob('*.json'), *root.glob('*/*.json')} - skipped):
        content = _load(path)
        lists = [content.get(k) for k in KEYS] if isinstance(content, dict) else [None]
        if all(isinstance(x, list) for x in lists) and all(lists[:2]):
            found.setdefault(_split_of(root, path), []).append((content, path))
    contents = {}
    for split, files in found.items():
        # COCO itself also contains files of keypoints.
        files = [f for f in files if f[1].name.startswith('instances')] or files
        if len(files) > 1:
            names = [str(path.relative_to(root)) for _, path in files]
            raise ValueError(
                f'{root} has several annotation files for {split}, {names}: expected '
                'one, or names with train and val'
            )
        contents[split] = files[0]
    return contents


def _split_of(root: Path, path: Path) -> str:
    """Return the split that a file's name, or else its folder's, has as a word."""
    for name in (path.stem, *path.relative_to(root).parts[:-1]):
        words = re.findall('[a-z]+', name.lower())
        if splits := [SPLIT_OF[word] for word in words if word in SPLIT_OF]:
            return splits[-1]
    return 'train'


def _place_images(
    root: Path, path: Path, split: str, content: dict, findings: Findings
) -> str:
    """Let the names of images be those in their folder; return the folder."""
    for image in content['images']:
        name = image.get('file_name')
        if not isinstance(name, str) or image.get('id') is None:
            raise ValueError(f'{path} has the image {image}: expected file_name and id')
    names = [image['file_name'] for image in content['images']]
    folder, inside = _locate(root, path, split, names, findings)
    for image, name in zip(content['images'], inside, strict=True):
        image['file_name'] = name
    return folder


def _locate(
    root: Path, path: Path, split: str, names: list[str], findings: Findings
) -> tuple[str, list[str]]:
    """Return the folder of the images of a file, and their names in it.

    Folders that are not here, at the beginning of all names, are left out.
    """
    if all(Path(name).is_absolute() and Path(name).is_file() for name in names):
        return '.', names
    on_disk = {p.relative_to(root).as_posix() for p in find_images(root)}
    parts = [PurePosixPath(name.replace('\\', '/')).parts for name in names]
    cuts = range(len(os.path.commonprefix([p[:-1] for p in parts])) + 1)
    missing, nearest = names, '.'
    for cut, folders in product(cuts, _image_folders(root, path, split, on_disk)):
        fits = {}
        for folder in folders:
            paths = [os.path.normpath(os.path.join(folder, *p[cut:])) for p in parts]
            lost = [n for n, p in zip(names, paths, strict=True) if p not in on_disk]
            if not lost:
                fits[tuple(paths)] = folder
            elif len(lost) < len(missing):
                missing, nearest = lost, folder
        if len(fits) > 1:
            raise ValueError(
                f'{path} names images that are in {len(fits)} folders, '
                f'{[*fits.values()][:3]}, such as {names[0]}: expected one folder'
            )
        for paths, folder in fits.items():
            findings[ELSEWHERE] += names if cut else []
            return folder, [os.path.relpath(path, folder) for path in paths]
    raise ValueError(
        f'{path} names {len(missing)} images that are not in '
        f'{os.path.normpath(root / nearest)}: {missing[:3]}'
    )


def _image_folders(
    root: Path, path: Path, split: str, on_disk: set[str]
) -> list[list[str]]:
    """Return folders that may have the images of a file, from most to least likely.

    These are its own, those named by the split or the file, those named images, and the
    root.
    """
    own = os.path.relpath(path.parent, root)
    words = {*SPLITS[split], *re.findall('[a-z0-9]+', path.stem.lower())}
    named, images = [], []
    above = {str(p) for name in on_disk for p in PurePosixPath(name).parents}
    for folder in sorted(above - {own, '.'}):
        parts = {*folder.lower().removeprefix(f'{own.lower()}/').split('/')}
        if parts <= {*IMAGE_DIRS}:
            images.append(folder)
        elif parts <= {*IMAGE_DIRS} | words:
            named.append(folder)
    return [[own], named, images, ['.']]


def read_objects(
    root: Path,
    contents: Contents,
    folders: dict[str, str],
    given: list[str],
    findings: Findings,
    turned: Sequence[int] = (2, 3, 4),
) -> LabelledFolder:
    """Check the COCO dicts of all splits; return what is in them.

    Args:
        root: The folder of the data.
        contents: COCO dict of every split and where it is from; changed in place.
        folders: Image folder of every split, relative to the root.
        given: Class names that the user expects.
        findings: Collects what was changed or cannot be used.
        turned: EXIF orientations that the labels may not have; sizes in the files show
            those from 5 on.
    """
    names = unify_categories(contents, findings)
    check_names(given, [*names.values()])
    facts: dict[Path, ImageFacts] = {}
    paths, notes = {}, []
    for split, (content, where) in contents.items():
        found = _read_images(root / folders[split], content, where, findings)
        paths[split] = [*found]
        facts |= found
        clean_objects(where, content, findings)
    with_mask = choose_outlines([c for c, _ in contents.values()], findings)
    objects = []
    for split, (content, where) in contents.items():
        number_objects(where, content, findings)
        images = {image['id']: image for image in content['images']}
        pairs = [(images[x['image_id']], x) for x in content['annotations']]
        if not pairs:
            other = '; '.join(findings.notes() + unread(root))
            raise ValueError(
                f'{where} has no object in {len(images)} images: expected some, or no '
                f'{split} split; {other}'
            )
        objects += pairs
        seen = {image['id'] for image, _ in pairs}
        empty = [image['file_name'] for i, image in images.items() if i not in seen]
        notes += note(f'{split} images without an object', empty)
    counts = Counter(names[x['category_id']] for _, x in objects)
    unused = [name for name in names.values() if not counts[name]]
    notes += note('classes without an object', unused)
    if 'val' in paths:
        notes += in_both(paths['train'], paths['val'])
    else:
        content, _ = contents['train']
        parts = divide([image['id'] for image in content['images']])
        for split, ids in zip(('train', 'val'), parts, strict=True):
            contents[split] = _part(content, {*ids}), None
            folders[split] = folders['train']
    notes += image_notes(facts, turned)
    splits = {
        split: Split(
            len(content['images']), dict(data_prefix=dict(img=folders[split])), content
        )
        for split, (content, _) in contents.items()
    }
    return LabelledFolder(
        root=root,
        task='det',
        splits=splits,
        classes=[*names.values()],
        counts=[counts[name] for name in names.values()],
        sizes=Counter(fact.size for fact in facts.values()),
        notes=findings.notes() + notes,
        facts=dict(
            with_mask=with_mask,
            share=median(_share(*pair) for pair in objects),
            max_per_image=max(Counter(id(image) for image, _ in objects).values()),
        ),
    )


def _read_images(
    folder: Path, content: dict, where: Any, findings: Findings
) -> dict[Path, ImageFacts]:
    """Return facts of all images by path; add missing sizes to their entries."""
    images = content['images']
    for key in ('id', 'file_name'):
        numbers = Counter(image[key] for image in images)
        if repeated := [value for value, number in numbers.items() if number > 1]:
            raise ValueError(
                f'{where} has images with the {key} {repeated[:3]} more than once: '
                'expected one entry for every image'
            )
    paths = [folder / image['file_name'] for image in images]
    facts = read_all(_check_size, [*zip(paths, images, strict=True)])
    for image, fact in zip(images, facts, strict=True):
        if not image.get('height') or not image.get('width'):
            findings[NO_SIZE].append(image['file_name'])
            image['height'], image['width'] = fact.size
    return dict(zip(paths, facts, strict=True))


def _check_size(path: Path, image: dict) -> ImageFacts:
    facts, size = read_image(path), (image.get('height'), image.get('width'))
    if all(size) and facts.size != size:
        turned = ' by its EXIF orientation' * (facts.orientation >= 5)
        raise ValueError(
            f'{path} has {facts.size} pixels{turned}: expected {size} by its JSON file'
        )
    return facts


def _share(image: dict, annotation: dict) -> float:
    """Return the root of a box's area as a fraction of the longer image side."""
    *_, width, height = annotation['bbox']
    return max(0, width * height) ** 0.5 / max(image['height'], image['width'])


def _part(content: dict, ids: set) -> dict:
    """Return a COCO dict restricted to some images."""
    images = [x for x in content['images'] if x['id'] in ids]
    objects = [x for x in content['annotations'] if x['image_id'] in ids]
    return dict(content, images=images, annotations=objects)
