"""The samples of a split, from the config of its dataloader."""

from __future__ import annotations

import copy
import json
import os.path as osp
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from ..folder_check import check_data_folders
from .samples import ClassSample, DepthSample, MapSample, ObjectsSample, Sample

# What a depth map's metric says of its range, and what it says by default.
RANGE = 'min_depth', 'max_depth'
NEAREST, FARTHEST = 1e-3, 10.0

# Parts of a model whose classes are not those of the data.
NO_HEADS = {'backbone', 'teacher', 'data_preprocessor', 'train_cfg'}

Problems = list[tuple[str, str, str]]  # kind, file, details


def samples_of(cfg: Config, split: str) -> tuple[list[Sample], list[str], Problems]:
    """What a split holds.

    Args:
        cfg: The config.
        split: ``'train'``, ``'val'`` or ``'test'``.

    Returns:
        Its samples, the names of classes (or bins of depth) that these count, and what
        is wrong beyond single samples.

    Raises:
        ValueError: If there is no such dataloader, its folders are missing, or its data
            set reads no files or ones that are not known here.
    """
    key = f'{split}_dataloader'
    loader = cfg.get(key)
    if loader is None:
        raise ValueError(f'the config has no {key} (option: --split)')
    samples: list[Sample] = []
    names: list[str] = []
    problems: Problems = []
    for dataset in _unwrapped(loader['dataset']):
        check_data_folders(dict(dataset=dataset), key)
        found, names, more = _read(cfg, dataset, split)
        samples += found
        problems += more
    if names and not isinstance((samples or [None])[0], DepthSample):
        problems += _wrong_heads(cfg, len(names))
    return samples, names, problems


def _unwrapped(dataset: Mapping) -> Iterator[dict]:
    """The data sets inside wrappers, ours and mmengine's."""
    if 'of' in dataset:
        plain = copy.deepcopy(dict(dataset))
        plain['type'] = plain.pop('of')
        yield plain
    elif 'dataset' in dataset:
        yield from _unwrapped(dataset['dataset'])
    elif 'datasets' in dataset:
        for part in dataset['datasets']:
            yield from _unwrapped(part)
    else:
        yield copy.deepcopy(dict(dataset))


def _read(
    cfg: Config, config: dict, split: str
) -> tuple[list[Sample], list[str], Problems]:
    pipeline = config.pop('pipeline', None) or []
    with DATASETS.switch_scope_and_registry(None) as registry:
        kind = registry.get(config['type'])
    if kind is None or not issubclass(kind, BaseDataset):
        raise ValueError(
            f'{config["type"]} reads no files that could be looked at; allowed are '
            f"mm's data sets of files (config key: {split}_dataloader.dataset)"
        )
    if hasattr(kind, 'COCOAPI'):
        lazy = DATASETS.build(dict(config, pipeline=[], lazy_init=True))
        return _of_coco(config, lazy.metainfo['classes'], pipeline)
    dataset = DATASETS.build(dict(config, pipeline=[]))
    names = list(dataset.metainfo.get('classes') or ())
    infos = [dataset.get_data_info(i) for i in range(len(dataset))]
    if not infos:
        return [], names, [('no samples', str(config.get('data_root')), '')]
    first = infos[0]
    if first.get('depth_map_path') is not None:
        return _of_depth(cfg, infos, pipeline, split)
    if first.get('seg_map_path') is not None:
        ignored = getattr(dataset, 'ignore_index', 255)
        return _of_maps(infos, names, ignored), names, []
    if 'gt_label' in first and 'img_path' in first:
        return _of_classes(infos, names)
    raise ValueError(
        f'{config["type"]} has neither label maps nor depth maps nor labels of images '
        f'in files; these are looked at (config key: {split}_dataloader.dataset)'
    )


def _of_maps(
    infos: Sequence[Mapping], names: Sequence[str], ignored: int
) -> list[Sample]:
    return [
        MapSample(
            info['img_path'],
            info['seg_map_path'],
            len(names),
            info.get('label_map'),
            bool(info.get('reduce_zero_label')),
            ignored,
        )
        for info in infos
    ]


def _of_depth(
    cfg: Config, infos: Sequence[Mapping], pipeline: Sequence[Mapping], split: str
) -> tuple[list[Sample], list[str], Problems]:
    steps = (t for t in pipeline if 'Depth' in str(t.get('type')))
    # The default is that of LoadDepthMap.
    metres = next((t.get('depth_rescale_factor', 1e-3) for t in steps), 1e-3)
    metric = cfg.get('val_evaluator') or cfg.get('test_evaluator') or {}
    metric = metric[0] if isinstance(metric, list | tuple) else metric
    low, high = (
        metric.get(key, default)
        for key, default in zip(RANGE, (NEAREST, FARTHEST), strict=True)
    )
    samples: list[Sample] = [
        DepthSample(i['img_path'], i['depth_map_path'], metres, low, high)
        for i in infos
    ]
    bins = samples[0].bins
    names = [
        f'{high * i / bins:.3g}-{high * (i + 1) / bins:.3g} m' for i in range(bins)
    ]
    return samples, names, []


def _of_classes(
    infos: Sequence[Mapping], names: Sequence[str]
) -> tuple[list[Sample], list[str], Problems]:
    samples: list[Sample] = []
    for info in infos:
        labels = info['gt_label']
        labels = labels if isinstance(labels, list | tuple) else [int(labels)]
        samples.append(ClassSample(info['img_path'], labels, len(names)))
    used = {label for sample in samples for label in sample.labels}
    empty = [name for i, name in enumerate(names) if i not in used]
    problems = [('class without images', name, '') for name in empty]
    return samples, list(names), problems


def _of_coco(
    config: Mapping, names: Sequence[str], pipeline: Sequence[Mapping]
) -> tuple[list[Sample], list[str], Problems]:
    root = config.get('data_root') or ''
    path = osp.join(root, config['ann_file'])
    folder = osp.join(root, (config.get('data_prefix') or {}).get('img', ''))
    try:
        data = json.loads(Path(path).read_text())
        images, categories = data['images'], data['categories']
        by_image = defaultdict(list)
        for thing in data['annotations']:
            by_image[thing['image_id']].append(thing)
        known = {image['id'] for image in images}
        classes = {c['id']: c['name'] for c in categories}
        files = [(image['id'], image['file_name'], image) for image in images]
    except (KeyError, OSError, TypeError, ValueError) as error:
        reason = f'{type(error).__name__} {error}'
        return [], list(names), [('unreadable annotation file', path, reason)]
    problems: Problems = [
        ('class without a category', path, name)
        for name in names
        if name not in classes.values()
    ]
    problems += [
        ('objects of no image', path, f'image_id {i}') for i in set(by_image) - known
    ]
    repeated = [i for i, n in Counter(i for i, _, _ in files).items() if n > 1]
    problems += [('repeated image id', path, f'id {i}') for i in repeated]
    labels = {i: names.index(name) for i, name in classes.items() if name in names}
    # Categories that the config does not train are left out by mm, and here.
    left_out = set(classes) - set(labels)
    masks = any(t.get('with_mask') for t in pipeline)
    samples: list[Sample] = []
    for image_id, name, image in files:
        size = image.get('height'), image.get('width')
        objects = [
            t for t in by_image[image_id] if t.get('category_id') not in left_out
        ]
        samples.append(
            ObjectsSample(
                osp.join(folder, name),
                None if None in size else size,
                objects,
                labels,
                masks,
            )
        )
    return samples, list(names), problems


def _wrong_heads(cfg: Config, number: int) -> Problems:
    """Heads that have another number of classes."""
    numbers = {
        f'{key}.num_classes': part.get('num_classes', number)
        for key, part in mappings_in(cfg.get('model'), 'model')
        if not NO_HEADS & set(key.split('.'))
    }
    return [
        ('head of another number of classes', key, f'{found}, the data {number}')
        for key, found in numbers.items()
        if isinstance(found, int) and found != number
    ]


def mappings_in(node: object, key: str) -> Iterator[tuple[str, Mapping]]:
    """Every mapping in a part of a config, itself included, after its config key."""
    if isinstance(node, Mapping):
        yield key, node
        children = node.items()
    elif isinstance(node, list | tuple):
        children = enumerate(node)
    else:
        return
    for name, child in children:
        yield from mappings_in(child, f'{key}.{name}')
