"""Checks of labels and of the heads that are trained on them."""

import re
from collections.abc import Iterator, Mapping

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from snnet_mm.datasets.data_checks import check_objects
from snnet_mm.models import StitchedBackbone
from snnet_mm.tasks import known
from snnet_mm.tasks.base import class_names
from snnet_mm.utils import check, isolated_rng

NUM_SAMPLES = 16  # random samples of a split whose labels are checked
COLORS = 'tools/dataset_converters/color_masks.py converts masks of colours'


def check_labels(
    dataset: Dataset, split: str, model: nn.Module, seed: int
) -> Iterator[str]:
    """Check the labels of a few samples, and heads for them; yield warnings.

    A label outside the classes raises an index error on a CPU and a device assert on a
    GPU. Metrics silently ignore it. Class names that are not in a COCO file leave its
    objects out.

    Args:
        dataset: Data set, which may be a wrapper of some.
        split: ``'train'`` or ``'val'``, by which config keys begin.
        model: The model, without wrappers.
        seed: Seed of the choice of samples.

    Raises:
        ValueError: If labels and classes cannot belong together, or there are none.
    """
    key, number = f'{split}_dataloader.dataset', len(dataset)
    check(number, key, number, '1 sample or more')
    classes = getattr(dataset, 'metainfo', {}).get('classes')
    if classes is None or hasattr(model, 'language_model'):  # which scores words
        return
    check_objects(dataset, key)
    head = getattr(model, 'decode_head', None)
    head = head[-1] if isinstance(head, nn.ModuleList) else head
    ignored, known_labels = getattr(head, 'ignore_index', 255), {*range(len(classes))}
    chosen, seen = np.random.default_rng(seed).permutation(number)[:NUM_SAMPLES], set()
    with isolated_rng(seed):
        for i in chosen.tolist():
            data = dataset[i]
            sample = data.get('data_samples', ()) if isinstance(data, dict) else ()
            if 'gt_instances' in sample:
                # mmdet derives their labels from the names, checked above.
                check_heads(model, dataset.metainfo, split)
                return
            if 'gt_sem_seg' in sample:
                labels, others = {*sample.gt_sem_seg.data.unique().tolist()}, [ignored]
            elif 'gt_label' in sample:
                labels, others = {*sample.gt_label.tolist()}, []
            else:
                return
            path = sample.get('seg_map_path') or sample.get('img_path', 'a sample')
            named = ' and '.join([f'0 to {len(classes) - 1}', *map(str, others)])
            wrong = sorted(labels - known_labels - {*others})
            keys = f'{key}, metainfo.classes, reduce_zero_label'
            expected = f'labels {named} in {path}; {COLORS}'
            # Metrics skip other labels, losses do not.
            check(not wrong or split != 'train', keys, wrong, expected)
            seen |= labels & known_labels - {ignored}
    check_heads(model, dataset.metainfo, split)
    of = f'{len(chosen)} of {number} samples of {key}'
    if not seen:
        all_seen = len(chosen) == number
        check(not all_seen, key, sorted(labels), 'labels that are not all ignored')
        yield f'No label in {of} counts: all are ignored (such as {sorted(labels)}).'
    elif len(seen) == 1 < min(len(classes), number) and split == 'train':
        (label,) = seen
        yield f'All labels in {of} are {label}, {classes[label]!r}: is that meant?'


def check_heads(model: nn.Module, metainfo: Mapping, split: str = 'train') -> None:
    """Raise unless the heads of a model have as many classes as a data set."""
    classes = metainfo['classes']
    # Heads of panoptic models may predict the classes of things only.
    allowed = {len(classes), len(metainfo.get('thing_classes') or classes)}
    numbers = ' or '.join(map(str, sorted(allowed, reverse=True)))
    data = f'{numbers}, the number of classes of the {split} set'
    layers = 'heads with layers of their own, as a stitched backbone returns no logits'
    stitched = isinstance(getattr(model, 'backbone', None), StitchedBackbone)
    heads, one_class = known('heads'), known('one_class')
    for path, part in model.named_modules():
        # Heads of a cascade and of end anchors have numbers in their paths.
        name = re.sub(r'(\.parts)?\.\d+', '', path)
        kinds = {*class_names(part)}
        # The parts of a PartPerAnchor are checked one by one.
        if name in heads and not kinds & {'PartPerAnchor', *one_class}:
            number = getattr(part, 'num_classes', max(allowed))
            # mmseg thresholds a single logit into two classes.
            right = number in allowed or (2 in allowed and is_binary(part))
            check(right, f'model.{name}.num_classes', number, data)
            # Such as mmpretrain's ClsHead, which expects logits from the backbone.
            empty = stitched and next(part.parameters(), None) is None
            check(not empty, f'model.{name}.type', type(part).__name__, layers)


def is_binary(head: nn.Module) -> bool:
    """Return whether a head tells one class from the rest by a single logit."""
    return getattr(head, 'out_channels', None) == 1
