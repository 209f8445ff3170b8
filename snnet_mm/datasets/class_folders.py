"""Read a folder of images for every class."""

from collections import Counter, defaultdict
from pathlib import Path

from .image_files import SUFFIXES, image_notes, read_all, read_image, unread
from .label_maps import DEPTH_DIRS, MASK_DIRS
from .labelled_folder import (
    IMAGE_DIRS,
    Findings,
    LabelledFolder,
    Split,
    check_names,
    choose_splits,
    divide,
    find_parts,
    in_both,
    relative_names,
)

NESTED = 'images are in folders inside that of their class'


def read_classes(root: Path, task: str, given: list[str]) -> LabelledFolder | None:
    """Read one folder of images per class, with splits around or inside them."""
    notes, findings = unread(root), Findings()
    files: dict[str, dict[str, list[Path]]] = {}
    for path, split, name, rest in find_parts(root, SUFFIXES):
        if name:
            files.setdefault(split, defaultdict(list))[name].append(path)
            findings[NESTED] += [f'{name}/{rest}'] if '/' in rest else []
    files = choose_splits(files, root, notes)
    classes = sorted(files.get('train', {}))
    lower = {name.lower() for name in classes}
    if lower & {*IMAGE_DIRS} and lower & {*MASK_DIRS, *DEPTH_DIRS}:
        raise ValueError(
            f'{root} has the folders {classes}, which are no classes: expected a '
            'folder per class; images with masks are --task seg'
        )
    if len(classes) < 2:
        return None
    for split, found in files.items():
        if other := sorted({*found} ^ {*classes}):
            raise ValueError(
                f'{split} of {root} differs from the training images in the classes '
                f'{other[:5]}: expected the same classes'
            )
    check_names(given, classes)
    if len(files) == 1:
        parts = {name: divide(files['train'][name]) for name in classes}
        named = enumerate(('train', 'val'))
        files = {split: {n: p[i] for n, p in parts.items()} for i, split in named}
    splits, paths = {}, {}
    for split, found in files.items():
        paths[split] = [path for name in classes for path in found[name]]
        labels = [i for i, name in enumerate(classes) for _ in found[name]]
        folder, names = relative_names(paths[split], root)
        lines = [f'{name} {i}' for name, i in zip(names, labels, strict=True)]
        splits[split] = Split(len(lines), dict(data_prefix=folder), lines)
    notes += findings.notes() + in_both(paths['train'], paths['val'])
    every = paths['train'] + paths['val']
    facts = dict(zip(every, read_all(read_image, [(p,) for p in every]), strict=True))
    notes += image_notes(facts, turned=())
    counts = [sum(len(found[name]) for found in files.values()) for name in classes]
    sizes = Counter(fact.size for fact in facts.values())
    return LabelledFolder(root, 'cls', splits, classes, counts, sizes, notes)
