import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mmdet.models.dense_heads import Mask2FormerHead, MaskFormerHead
from mmengine.hooks import RuntimeInfoHook
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from mmseg.models.decode_heads import Mask2FormerHead as MMSegHead
from tiny import tiny_config
from torch import nn
from torch.utils.data import ConcatDataset

from snnet_mm.tasks.detection_parts.eomt import EoMTHead
from snnet_mm.training import LabelCheckHook, LossCheckHook, TrainableParamsHook
from snnet_mm.training.checking_hooks import LaunchReportHook


class Part(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.num_classes = num_classes


def look_at(sample, model, **metainfo):
    """Run the hook on a data set of one sample."""
    data = ConcatDataset([[dict(data_samples=sample)]])
    data.metainfo = metainfo
    runner = SimpleNamespace(model=nn.DataParallel(model), seed=0)
    runner.train_dataloader = SimpleNamespace(dataset=data)
    LabelCheckHook().before_train(runner)


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
def test_label_check_hook_labels_and_classes_of_a_sample(
    kind, label, num_classes, message
):
    labels = torch.tensor([[[1, label]]])
    labels = labels[0, 0] if kind == 'gt_label' else BaseDataElement(data=labels)
    paths = dict(seg_map_path='a.png', img_path='a.png')
    sample, model = BaseDataElement(metainfo=paths, **{kind: labels}), nn.Module()
    model.decode_head = Part(num_classes)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        look_at(sample, model, classes=tuple('abcdef'))


def test_label_check_hook_heads_of_other_classes_are_refused():
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


def logger_to(lines):
    return SimpleNamespace(info=lines.append, warning=lines.append)


def test_trainable_params_hook_logs_parameters():
    cfg = tiny_config()
    for anchor in cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    init_default_scope(cfg.default_scope)
    model, hook, said = MODELS.build(cfg.model), TrainableParamsHook(), []
    runner = SimpleNamespace(model=model, logger=logger_to(said), hooks=())
    hook.before_train(runner)
    # qkv and proj of two blocks x 8 and four x 12 channels, rank 4.
    assert f'backbone.anchors {24 * (2 * 8 + 4 * 12):,} of ' in said[0]
    assert 'Only stitch 1 will be trained: there is no StitchSampl' in said[1]
    model.requires_grad_(False)
    with pytest.raises(ValueError, match='=0 is invalid.*lora'):
        hook.before_train(runner)


@pytest.mark.parametrize('losses, stops', [('1nn1nn1', None), ('1n1nnin', 6)])
def test_loss_check_hook_losses_not_finite_stop_training(losses, stops):
    hub, hook, warned = MessageHub('losses'), LossCheckHook(patience=3), []
    runner = SimpleNamespace(message_hub=hub, logger=logger_to(warned))
    hub.update_info('last_ckpt', 'iter_1.pth')
    for runner.iter, name in enumerate(losses[:stops]):
        loss = torch.tensor(dict(n=math.nan, i=math.inf).get(name, 1.0))
        outputs = dict(loss_ce=loss, acc=torch.tensor(math.nan))  # of no pixels
        RuntimeInfoHook().after_train_iter(runner, 0, outputs=outputs)
        message = r'iterations 4 to 6: .*iter_1\.pth'
        stop = pytest.raises(ValueError, match=message)
        with stop if runner.iter + 1 == stops else nullcontext():
            hook.after_train_iter(runner, 0, outputs=outputs)
    first = [losses.index('n') + 1, losses.rindex('1n') + 2]
    assert warned == [f'loss=nan at iteration {i}.' for i in first]


@pytest.mark.parametrize('kind', [MaskFormerHead, Mask2FormerHead, MMSegHead, EoMTHead])
@pytest.mark.parametrize('dtype', ['none', None, torch.float16, torch.bfloat16])
def test_loss_check_hook_mask_losses_float16_rejected(kind, dtype):
    head = kind.__new__(kind)
    nn.Module.__init__(head)
    options = {} if dtype == 'none' else dict(cast_dtype=dtype)  # without --amp
    wrapper = SimpleNamespace(**options)
    runner = SimpleNamespace(model=nn.ModuleList([head]), optim_wrapper=wrapper)
    wrong = dtype in (None, torch.float16) and kind is not EoMTHead
    stop = pytest.raises(ValueError, match=r'optim_wrapper\.dtype')
    with stop if wrong else nullcontext():
        LossCheckHook().before_train(runner)


@pytest.mark.parametrize(
    ('base', 'counts', 'sampled', 'batch', 'warns'),
    [(8, 1, False, 2, True), (6, 3, False, 6, False), (8, 1, True, 4, True)],
)
def test_launch_report_hook_warns_of_another_batch(base, counts, sampled, batch, warns):
    """Also of a batch sampler, as in most configs of mmdet, whose loaders know none."""
    said = []
    size = dict(batch_size=None if sampled else 2)
    runner = SimpleNamespace(
        iter=4,
        max_iters=4,
        train_dataloader=SimpleNamespace(
            **size, batch_sampler=SimpleNamespace(batch_size=4)
        ),
        optim_wrapper=SimpleNamespace(_accumulative_counts=counts),
        model=nn.Linear(1, 1),
        cfg=dict(auto_scale_lr=dict(base_batch_size=base)),
        logger=logger_to(said),
    )
    LaunchReportHook().before_train(runner)
    nothing_left, report, *warned = said
    assert nothing_left.startswith('Nothing is left to train')
    assert report.startswith(f'Batch of {batch}: ')
    assert [f'made for batches of {base} ' in text for text in warned] == [True] * warns


def test_label_check_hook_heads_without_layers(build_snnet):
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
