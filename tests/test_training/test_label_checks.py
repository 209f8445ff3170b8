from contextlib import nullcontext

import pytest
import torch
from mmengine.structures import BaseDataElement
from torch import nn
from torch.utils.data import ConcatDataset

from snnet_mm.training.label_checks import NUM_SAMPLES, check_labels


class Part(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.num_classes = num_classes


def look_at(samples, model, split='train', **metainfo):
    """Check the labels of some samples, and the heads; return the warnings."""
    samples = samples if isinstance(samples, list) else [samples]
    data = ConcatDataset([[dict(data_samples=sample) for sample in samples]])
    data.metainfo = metainfo
    return [*check_labels(data, split, model, 0)]


@pytest.mark.parametrize(
    'kind, label, num_classes, message',
    [
        ('gt_sem_seg', 255, 6, None),
        ('gt_sem_seg', 6, 6, r'reduce_zero_label=\[6\].*a\.png'),
        ('gt_sem_seg', 0, 3, r'model\.decode_head\.num_classes'),
        ('gt_label', 6, 6, r'=\[6\].*a\.png'),
        ('text', 6, 3, None),
    ],
)
def test_labels_and_classes_of_a_sample(kind, label, num_classes, message):
    labels = torch.tensor([[[1, label]]])
    labels = labels[0, 0] if kind == 'gt_label' else BaseDataElement(data=labels)
    paths = dict(seg_map_path='a.png', img_path='a.png')
    sample, model = BaseDataElement(metainfo=paths, **{kind: labels}), nn.Module()
    model.decode_head = Part(num_classes)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        look_at(sample, model, classes=tuple('abcdef'))


def test_heads_of_other_classes_are_refused():
    """Things alone are allowed too, and heads that tell objects from background."""
    sample = BaseDataElement(gt_instances=BaseDataElement())
    classes = dict(classes=('cell', 'spot', 'sky'), thing_classes=('a', 'b'))
    model, rpn = nn.Module(), type('GARPNHead', (Part,), {})(1)
    model.bbox_head = nn.ModuleList([rpn, Part()])
    model.roi_head = nn.Module()
    model.roi_head.mask_head = nn.Module()  # as one for each end anchor
    model.roi_head.mask_head.parts = nn.ModuleList([Part(), Part()])
    for name, number in (('bbox_head', '1'), ('roi_head.mask_head', 'parts.1')):
        (part := model.get_submodule(f'{name}.{number}')).num_classes = 2
        look_at(sample, model, **classes)
        part.num_classes = 1
        with pytest.raises(ValueError, match=rf'=1 .*model\.{name}\.num_classes'):
            look_at(sample, model, **classes)
        part.num_classes = 3


def test_heads_without_layers(build_snnet):
    """Such as mmpretrain's VGG has, whose backbone returns logits itself."""
    sample = BaseDataElement(gt_instances=BaseDataElement())
    model = nn.Module()
    model.backbone, model.head = nn.Module(), Part()
    look_at(sample, model, classes=('a', 'b', 'c'))
    model.backbone = build_snnet()
    with pytest.raises(ValueError, match=r"'Part'.*model\.head\.type"):
        look_at(sample, model, classes=('a', 'b', 'c'))
    model.head.fc = nn.Linear(2, 3)
    look_at(sample, model, classes=('a', 'b', 'c'))


def test_heads_of_a_single_logit_have_two_classes():
    """mmseg thresholds it, whatever number of classes its config says."""
    sample, model = BaseDataElement(gt_instances=BaseDataElement()), nn.Module()
    model.decode_head = Part(1)
    with pytest.raises(ValueError, match='=1 is invalid: expected 2'):
        look_at(sample, model, classes=('sky', 'cloud'))
    model.decode_head.out_channels = 1
    look_at(sample, model, classes=('sky', 'cloud'))
    with pytest.raises(ValueError, match='=1 is invalid: expected 3'):
        look_at(sample, model, classes=('sky', 'cloud', 'sun'))


def maps_of(*labels):
    """Samples of label maps, each of one label."""
    return [
        BaseDataElement(gt_sem_seg=BaseDataElement(data=torch.full((1, 2, 2), label)))
        for label in labels
    ]


@pytest.mark.parametrize('split', ['train', 'val'])
def test_splits_without_a_labelled_pixel(split):
    model, classes = nn.Module(), ('a', 'b')
    given = dict(split=split, classes=classes)
    with pytest.raises(ValueError, match=rf'\[255\].*all ignored.*{split}_dataloader'):
        look_at(maps_of(255, 255), model, **given)
    assert look_at(maps_of(255, 0, 1), model, **given) == []
    # Others may be labelled.
    (warned,) = look_at(maps_of(*[255] * (NUM_SAMPLES + 1)), model, **given)
    assert warned.startswith(f'No label in {NUM_SAMPLES} of {NUM_SAMPLES + 1} samples')


def test_labels_of_one_class_are_said():
    """As of masks with the values 0 and 255, whose second class is ignored."""
    model, classes = nn.Module(), ('sky', 'road')
    (warned,) = look_at(maps_of(0, 255, 0), model, classes=classes)
    assert warned.startswith('All labels in 3 of 3 samples of train_dataloader.dataset')
    assert "are 0, 'sky'" in warned
    assert look_at(maps_of(0, 1, 0), model, classes=classes) == []
    assert look_at(maps_of(0, 0), model, 'val', classes=classes) == []
    assert look_at(maps_of(0, 0), model, classes=classes[:1]) == []


def test_labels_that_metrics_skip_are_fine_in_validation():
    model = nn.Module()
    with pytest.raises(ValueError, match=r'=\[7\] is invalid'):
        look_at(maps_of(0, 7), model, classes=('a', 'b'))
    assert look_at(maps_of(0, 7), model, 'val', classes=('a', 'b')) == []
