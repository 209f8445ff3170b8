"""Read COCO's annotation files, and find the images that they name."""

import copy
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from .coco_objects import (
    DROPPED,
    NO_BOX,
    choose_outlines,
    clean_objects,
    number_objects,
    unify_categories,
    why_dropped,
)
from .image_files import (
    ImageFacts,
    find_images,
    image_notes,
    note,
    read_all,
    read_image,
)
from .labelled_folder import (
    IMAGE_DIRS,
    SPLITS,
    Findings,
    LabelledFolder,
    Split,
    alike,
    check_names,
    choose_splits,
    divide,
    in_both,
)

Contents = dict[str, tuple[dict, Any]]  # COCO dict and where it is from
NO_SIZE = 'images have no size in their file: added'
RENAMED = 'file names differ from those on the disk: replaced'
REPEATED = 'images are listed more than once: listed once'
ELSEWHERE = 'file names begin with folders that are not here, left out'
SPLIT = {option: split for split, options in SPLITS.items() for option in options}


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
    before = {s: copy.deepcopy(content) for s, (content, _) in found.items()}
    folders = {}
    for split, (content, path) in found.items():
        folders[split] = _place_images(root, path, split, content, findings)
    result = read_objects(root, found, folders, given, findings)
    result.notes = notes + result.notes
    for split, part in result.splits.items():
        if part.annotations is not None and part.annotations == before.get(split):
            part.annotations, path = None, found[split][1]
            part.dataset['ann_file'] = str(path)
    return result


def _find_files(root: Path, skipped: set[Path]) -> Contents:
    """Return the COCO dict of every split, and its file."""
    found: dict[str, list] = {}
    for path in sorted({*root.glob('*.json'), *root.glob('*/*.json')} - skipped):
        try:
            content = json.loads(path.read_text(encoding='utf-8-sig'))
        except ValueError as error:
            raise ValueError(f'{path} is no JSON: {error}') from error
        if _is_coco(content):
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
        splits = [SPLIT[word] for word in words if word in SPLIT]
        if splits:
            return splits[-1]
    return 'train'


def _is_coco(content: Any) -> bool:
    """Return whether a file lists images, categories and boxes or outlines of them."""
    if not isinstance(content, dict):
        return False
    parts = [content.get(key) for key in ('images', 'categories', 'annotations')]
    if not all(isinstance(part, list) for part in parts) or not all(parts[:2]):
        return False
    objects = parts[2]
    if any(not isinstance(x, dict) for part in parts for x in part):
        return False
    return not objects or any(x.keys() & {'bbox', 'segmentation'} for x in objects)


def _place_images(
    root: Path, path: Path, split: str, content: dict, findings: Findings
) -> str:
    """Set names and sizes of images as on the disk; return their folder."""
    for image in content['images']:
        name = image.get('file_name')
        if not isinstance(name, str) or image.get('id') is None:
            raise ValueError(f'{path} has the image {image}: expected file_name and id')
    names = [image['file_name'] for image in content['images']]
    folder, found = _locate(root, path, split, [*dict.fromkeys(names)], findings)
    for image in content['images']:
        image['file_name'] = found[image['file_name']]
    return folder


def _locate(
    root: Path, path: Path, split: str, names: list[str], findings: Findings
) -> tuple[str, dict[str, str]]:
    """Return the folder of the file names, and every name as it is on the disk.

    Folders that are not here, at the beginning of all names, are left out. Folders of
    any name are searched only if the usual ones have no image of the file.
    """
    if all(Path(name).is_absolute() and Path(name).is_file() for name in names):
        return '.', {name: name for name in names}
    on_disk = {p.relative_to(root).as_posix() for p in find_images(root)}
    lower = {name.lower(): name for name in on_disk}
    parts = [PurePosixPath(name.replace('\\', '/')).parts for name in names]
    shared = len(os.path.commonprefix([p[:-1] for p in parts]))
    missing, nearest = names, '.'
    for search, dropped in product((_usual, _elsewhere), range(shared + 1)):
        if search is _elsewhere and len(missing) < len(names):
            break
        rest = ['/'.join(p[dropped:]) for p in parts]
        for bases in search(root, path, split, rest[0], lower):
            fits = {}
            for base in bases:
                paths = [os.path.normpath(os.path.join(base, name)) for name in rest]
                hits = [p if p in on_disk else lower.get(p.lower()) for p in paths]
                if all(hits):
                    fits[tuple(hits)] = base, paths
                elif sum(map(bool, hits)) > len(names) - len(missing):
                    nearest = base
                    missing = [n for n, hit in zip(names, hits, strict=True) if not hit]
            if fits:
                _check_one(path, [base for base, _ in fits.values()], names[0])
                ((hits, (base, paths)),) = fits.items()
                findings[ELSEWHERE] += names if dropped else []
                pairs = zip(paths, hits, strict=True)
                findings[RENAMED] += [p for p, hit in pairs if p != hit]
                actual = [os.path.relpath(hit, base) for hit in hits]
                return base, dict(zip(names, actual, strict=True))
    raise ValueError(
        f'{path} names {len(missing)} images that are not in '
        f'{os.path.normpath(root / nearest)}: {missing[:3]}'
    )


def _check_one(path: Path, folders: list[str], name: str) -> None:
    if len(folders) > 1:
        raise ValueError(
            f'{path} names images that are in {sorted(folders)}, such as {name}: '
            'expected one folder that has them; move the others away, or write the '
            'folder into file_name'
        )


def _usual(
    root: Path, path: Path, split: str, name: str, lower: dict[str, str]
) -> Iterator[list[str]]:
    """Yield folders for the images of a file, from the most to the least likely.

    These are its own, those named by the split or the file, and those named images.
    """
    own = os.path.relpath(path.parent, root)
    folders, tops = _folders_above(lower), dict.fromkeys(['.', own])
    words = dict.fromkeys([*SPLITS[split], *re.findall('[a-z0-9]+', path.stem.lower())])
    named = [f'{t}/{s}' for t in tops for s in words]
    named += [f'{t}/{s}/{i}' for t in tops for s in words for i in IMAGE_DIRS]
    named += [f'{t}/{i}/{s}' for t in tops for s in words for i in IMAGE_DIRS]
    yield [own]
    yield _existing(named, folders)
    yield _existing([f'{t}/{i}' for t in tops for i in IMAGE_DIRS], folders)
    yield ['.']


def _elsewhere(
    root: Path, path: Path, split: str, name: str, lower: dict[str, str]
) -> Iterator[list[str]]:
    """Yield all folders with a file of this name, but those of other splits."""
    other, end = {o for o in SPLIT if SPLIT[o] != split}, f'/{name.lower()}'
    found = [hit[: -len(end)] for low, hit in lower.items() if low.endswith(end)]
    yield [base for base in found if not other & {*base.lower().split('/')}]


def _folders_above(lower: dict[str, str]) -> dict[str, str]:
    """Return all folders with images in them or below, by lower-case names."""
    found = {}
    for path in {os.path.dirname(p) for p in lower.values()}:
        while path and path.lower() not in found:
            found[path.lower()] = path
            path = os.path.dirname(path)
    return found


def _existing(names: list[str], folders: dict[str, str]) -> list[str]:
    paths = dict.fromkeys(os.path.normpath(name) for name in names)
    return [folders[path] for path in paths if path in folders]


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
    paths = {}
    for split, (content, where) in contents.items():
        images, found = _read_images(root / folders[split], content, where, findings)
        paths[split] = [*found]
        facts |= found
        clean_objects(where, content, images, findings)
    with_mask = choose_outlines({s: c for s, (c, _) in contents.items()}, findings)
    kept, sizes, notes = [], Counter(), []
    for split, (content, where) in contents.items():
        images = {image['id']: image for image in content['images']}
        used = _kept_objects(where, content, images, findings)
        kept += used
        sizes.update((image['height'], image['width']) for image in images.values())
        seen = {image['id'] for image, _ in used}
        empty = [image['file_name'] for i, image in images.items() if i not in seen]
        notes += note(f'{split} images without an object', empty)
    counts = Counter(names[x['category_id']] for _, x in kept)
    unused = [name for name in names.values() if not counts[name]]
    notes += note('classes without an object', unused) + alike(names.values())
    _check_apart(paths, {split: where for split, (_, where) in contents.items()})
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
            len(content['images']), dict(data_prefix=dict(img=folder)), content
        )
        for split, folder in folders.items()
        for content in [contents[split][0]]
    }
    return LabelledFolder(
        root=root,
        task='det',
        splits=splits,
        classes=[*names.values()],
        counts=[counts[name] for name in names.values()],
        sizes=sizes,
        notes=findings.notes() + notes,
        facts=dict(
            with_mask=with_mask,
            share=median(_share(*pair) for pair in kept),
            max_per_image=max(Counter(id(image) for image, _ in kept).values()),
        ),
    )


def _kept_objects(
    where: Any, content: dict, images: dict, findings: Findings
) -> list[tuple[dict, dict]]:
    """Return images and objects that training keeps; number all objects anew."""
    used, dropped = [], Findings()
    for x in content['annotations']:
        image = images[x['image_id']]
        if reason := why_dropped(x, image):
            dropped[DROPPED[reason]].append(f'id {x.get("id")}')
        else:
            used.append((image, x))
    if not used:
        why = dropped.notes() or note(NO_BOX, findings[NO_BOX]) or ['it has none']
        raise ValueError(
            f'{where} has no object that training keeps: {"; ".join(why)}; a file for '
            'validation may be removed: then a fifth of the training images is used'
        )
    for what, names in dropped.items():
        findings[what] += names
    number_objects(where, content, findings)
    return used


def _read_images(
    folder: Path, content: dict, where: Any, findings: Findings
) -> tuple[dict[Any, dict], dict[Path, ImageFacts]]:
    """Return image entries by all ids in use, and facts by path; add missing sizes."""
    by_id: dict[Any, dict] = {}
    by_name: dict[str, dict] = {}
    for image in content['images']:
        first = by_name.setdefault(image['file_name'], image)
        if first is not image:
            findings[REPEATED].append(image['file_name'])
        other = by_id.setdefault(image['id'], first)
        if other is not first:
            raise ValueError(
                f'{where} has the image id {image["id"]} for {other["file_name"]} and '
                f'{image["file_name"]}: expected an id of its own for every image'
            )
    content['images'] = [*by_name.values()]
    paths = [folder / name for name in by_name]
    facts = read_all(_check_size, [*zip(paths, by_name.values(), strict=True)])
    for image, fact in zip(by_name.values(), facts, strict=True):
        if not image.get('height') or not image.get('width'):
            findings[NO_SIZE].append(image['file_name'])
            image['height'], image['width'] = fact.size
    return by_id, dict(zip(paths, facts, strict=True))


def _check_size(path: Path, image: dict) -> ImageFacts:
    facts, size = read_image(path), (image.get('height'), image.get('width'))
    if all(size) and facts.size != size:
        turned = ' by its EXIF orientation' * (facts.orientation >= 5)
        raise ValueError(
            f'{path} has {facts.size} pixels{turned}: expected {size} by its JSON file'
        )
    return facts


def _check_apart(paths: dict[str, list[Path]], where: dict[str, Any]) -> None:
    """Raise if splits have an image in common."""
    seen: dict[str, Any] = {}
    for split, found in paths.items():
        names = {os.path.normpath(path) for path in found}
        if both := sorted(names & seen.keys()):
            raise ValueError(
                f'{seen[both[0]]} and {where[split]} have {len(both)} images in '
                f'common, such as {both[0]}: expected others for validation'
            )
        seen |= dict.fromkeys(names, where[split])


def _share(image: dict, annotation: dict) -> float:
    """Return the root of a box's area as a fraction of the longer image side."""
    *_, width, height = annotation['bbox']
    return (width * height) ** 0.5 / max(image['height'], image['width'])


def _part(content: dict, ids: set) -> dict:
    """Return a COCO dict restricted to some images."""
    images = [x for x in content['images'] if x['id'] in ids]
    objects = [x for x in content['annotations'] if x['image_id'] in ids]
    return dict(content, images=images, annotations=objects)
