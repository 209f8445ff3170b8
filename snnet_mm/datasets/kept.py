"""Compare what a data set's class and transforms keep with what its files hold."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.fileio import load
from mmengine.logging import print_log
from mmengine.registry import DATASETS, DefaultScope

from snnet_mm.utils import check, refusal

from .folder_check import check_class_names
from .image_files import note, read_all
from .labelled_folder import LabelledFolder


def innermost(dataset: Any) -> Iterator[Any]:
    """Yield the data sets inside wrappers such as RepeatDataset and ConcatDataset."""
    inside = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    for child in inside:
        if child is None:
            yield dataset
        else:
            yield from innermost(child)


def count_kept(data: LabelledFolder, cfg: Config) -> tuple[list[int], list[str]]:
    """Count the pixels, objects or images of every class in training.

    Training and validation images are loaded by the transforms of the config. Depth
    maps count their valid pixels as one class. The parts of its task are registered.

    Returns:
        The counts, and notes on classes without any or with other counts in the files.

    Raises:
        ValueError: If images cannot be loaded, or no label of the training or
            validation images is kept.
    """
    total: Counter[int] = Counter()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        for phase in ('train', 'val'):
            built = DATASETS.build(cfg[f'{phase}_dataloader'].dataset)
            found: Counter[int] = Counter()
            for dataset in innermost(built):
                items = [(dataset, i) for i in range(len(dataset))]
                found += sum(read_all(_labels_of, items), Counter())
            if not found:
                raise ValueError(
                    f'no label of the {phase} images is kept: objects are left out by '
                    '"ignore" and "iscrowd", outside their image, and below 1 pixel '
                    f'(config: {cfg.filename}, {phase}_dataloader)'
                )
            total += found
    kept = [total[i] for i in range(max(1, len(data.classes)))]
    pairs = [*zip(data.classes, kept, strict=True)] if data.classes else []
    notes = note('classes without a label', [name for name, n in pairs if not n])
    other = [
        f'{name}: {n} instead of {data.counts[name]}'
        for name, n in pairs
        if data.counts and data.counts[name] != n
    ]
    what = 'classes have other counts in training than in the files, because of '
    what += '"ignore", "iscrowd", boxes outside their image and below 1 pixel'
    return kept, notes + note(what, other)


def _labels_of(dataset: Any, index: int) -> Counter[int]:
    """Return the number of every label of an image, as its transforms load it."""
    results = dataset.get_data_info(index)
    path = results.get('img_path')
    try:
        for transform in dataset.pipeline.transforms:
            if type(transform).__name__.startswith('Load'):
                results = transform(results)
    except Exception as error:
        raise ValueError(
            f'training cannot load the labels of {path}: {error}'
        ) from error
    if 'gt_seg_map' in results:
        labels = results['gt_seg_map']
    elif 'gt_depth_map' in results:
        labels = 0 * results['gt_depth_map'][results['gt_depth_map'] > 0]
    elif 'gt_bboxes_labels' in results:
        labels = results['gt_bboxes_labels'][~results['gt_ignore_flags']]
    else:
        labels = results['gt_label']
    values, numbers = np.unique(labels, return_counts=True)
    return Counter(dict(zip(map(int, values), numbers.tolist(), strict=True)))


def check_objects(dataset: Any, key: str) -> None:
    """Raise if class names are no list or not in a COCO file, or no object is kept.

    mmdet ignores objects of other names without a word.

    Args:
        dataset: Any data set, or wrapper of some.
        key: Its config key.
    """
    kept = []  # of each data set with objects, whether it keeps one
    for leaf in innermost(dataset):
        classes = getattr(leaf, 'metainfo', {}).get('classes') or ()
        check_class_names(classes, key)
        if hasattr(leaf, 'cat_ids') and getattr(leaf, 'ann_file', None):
            _check_categories(leaf, [*classes], f'{key}.metainfo.classes')
        infos = hasattr(leaf, 'get_data_info') and len(leaf) and leaf.get_data_info(0)
        if infos and 'instances' in infos:
            kept.append(any(map(_keeps_one, map(leaf.get_data_info, range(len(leaf))))))
    if kept and not any(kept):
        raise ValueError(
            'no object is kept of the data: all are of other classes, ignored, outside '
            'their image, or of no area (config keys: '
            f'{key}.ann_file, {key}.metainfo.classes)'
        )


def _check_categories(leaf: Any, classes: list[str], key: str) -> None:
    """Compare class names with the categories of a COCO file, which define labels."""
    backend = getattr(leaf, 'backend_args', None)
    content = load(leaf.ann_file, file_format='json', backend_args=backend)
    by_id = {c['id']: c['name'] for c in content['categories']}
    order = [by_id[i] for i in leaf.cat_ids if i in by_id]
    if len(order) < len(classes):
        unknown = [name for name in classes if name not in order]
        raise refusal(key, unknown, [*by_id.values()], misspelt=(unknown or [None])[0])
    twice = [name for name, n in Counter(order).items() if n > 1]
    one = f'names that each belong to one category of {leaf.ann_file}'
    check(not twice or len(order) == len(classes), key, twice, one)
    if order != classes:
        print_log(
            f'{leaf.ann_file} has the order of classes {order[:10]}, which is that of '
            f'labels: pictures and exports name them wrongly (config key: {key})',
            'current',
            level=30,
        )


def _keeps_one(info: dict) -> bool:
    return any(not x.get('ignore_flag') for x in info['instances'])
