"""Trainings that cannot mean anything, found before their first iteration."""

import copy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from mmdet.models.dense_heads import Mask2FormerHead, MaskFormerHead
from mmengine.model import MMDistributedDataParallel
from mmseg.models.decode_heads import Mask2FormerHead as MMSegHead
from ready import ready
from torch import nn

from snnet_mm.tasks.mmdet.eomt import EoMTHead
from snnet_mm.training import run, training_check
from snnet_mm.training.training_check import check_training

DATA, LOOP = 'train_dataloader', 'train_cfg'
EPOCHS = {
    LOOP: dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=1),
    'log_processor.by_epoch': True,
}
DROPPED = {f'{DATA}.sampler.of': 'DefaultSampler', f'{DATA}.drop_last': True}
DROPPED |= {f'{DATA}.batch_size': 9}  # of four images
POLY = dict(type='PolyLR', eta_min=0, power=1.0, begin=0, end=4, by_epoch=False)
COSINE = dict(type='CosineAnnealingLR', T_max=3, eta_min=0, end=4, by_epoch=False)


@pytest.mark.parametrize(
    ('changes', 'key'),
    [
        (EPOCHS, 'train_dataloader.sampler'),
        ({'val_dataloader.sampler.type': 'InfiniteSampler'}, 'val_dataloader.sampler'),
        (DROPPED, 'drop_last'),
        ({'val_evaluator.iou_metrics': ['mIoU', 'mIou']}, 'val_evaluator'),
        ({'default_hooks.checkpoint.save_best': 'mIou'}, 'save_best'),
    ],
)
def test_train_refuses_before_the_first_iteration(stitched_cfg, changes, key):
    stitched_cfg.merge_from_dict(changes)
    if changes is EPOCHS:
        for part in ('cfg', 'dataloader', 'evaluator'):
            stitched_cfg[f'val_{part}'] = None
    with pytest.raises(ValueError, match=key):
        run.train(stitched_cfg)
    assert not [*Path(stitched_cfg.work_dir).glob('*.pth')]


def test_check_training_nothing_to_train(stitched_cfg):
    runner, _ = ready(stitched_cfg)
    runner.model.requires_grad_(False)
    with pytest.raises(ValueError, match='lora.*=0 is .*frozen'):
        check_training(runner)


def test_check_training_says_all_in_order(stitched_cfg):
    stitched_cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)
    stitched_cfg.param_scheduler = [dict(POLY, end=2)]
    stitched_cfg.model.decode_head.num_classes = 4
    stitched_cfg.optim_wraper = dict(optimizer=dict(lr=1))
    runner, warned = ready(stitched_cfg)
    with pytest.raises(ValueError) as caught:
        check_training(runner)
    endless, heads = str(caught.value).splitlines()
    assert 'InfiniteSampler' in endless
    assert heads.startswith('num_classes=4 is invalid')
    starts = 'The learning rate is', 'These anchors start ', 'Nothing reads optim_'
    assert tuple(text[:20] for text in warned[:3]) == tuple(s[:20] for s in starts)


@pytest.mark.parametrize(
    ('schedule', 'steps', 'words'),
    [
        (POLY, 8, 'The learning rate is 0 from iteration 4 of 8'),
        (COSINE, 8, 'The learning rate is 0 from iteration 4 of 8'),
        (dict(POLY, eta_min=1e-5), 8, None),
        (POLY, 4, None),
        (dict(type='MultiStepLR', milestones=[2], by_epoch=False), 8, None),
        (dict(POLY, by_epoch=True), 8, 'PolyLR counts epochs, but'),
        (dict(type='ReduceOnPlateauLR', monitor='mIoU', by_epoch=True), 8, None),
    ],
)
def test_check_training_schedules_that_end_at_0(stitched_cfg, schedule, steps, words):
    stitched_cfg.param_scheduler, stitched_cfg.train_cfg.max_iters = [schedule], steps
    runner, warned = ready(stitched_cfg)
    before = copy.deepcopy(runner.param_schedulers[0].state_dict())
    rates = runner.optim_wrapper.get_lr()
    check_training(runner)
    said = [text for text in warned if 'rate' in text or 'epochs' in text]
    assert len(said) == (words is not None)
    assert not words or words in said[0]
    assert runner.param_schedulers[0].state_dict() == before
    assert runner.optim_wrapper.get_lr() == rates


def test_train_resumed_after_the_end_of_its_schedule(plain_cfg):
    """A longer ``max_iters`` would train at rate 0; ``--iters`` rescales schedules."""
    cfg = plain_cfg
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.5, begin=0, end=2, by_epoch=False),
        dict(POLY, begin=2),
    ]
    cfg.optim_wrapper.optimizer.lr = 1e-3
    cfg.default_hooks.checkpoint.interval = 100
    cfg.train_cfg.update(max_iters=4, val_interval=100)
    assert run.train(cfg).optim_wrapper.get_lr()['lr'][0] == 0
    cfg.train_cfg.max_iters = 8
    with pytest.raises(ValueError, match=r'end=4 .*: expected .* 8 .*--iters'):
        run.train(cfg, resume=True)


@pytest.fixture
def alone():
    """A process group of one process."""
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_check_training_ranks_find_unused_parameters(stitched_cfg, alone):
    runner, _ = ready(stitched_cfg)

    def look(**settings):
        model = MMDistributedDataParallel(runner.model, device_ids=None, **settings)
        parts = dict(hooks=runner.hooks, optim_wrapper=runner.optim_wrapper)
        return [*training_check._gradients(SimpleNamespace(model=model, **parts))]

    with pytest.raises(ValueError, match='find_unused_parameters=False is invalid'):
        look()
    assert look(find_unused_parameters=True) == look(static_graph=True) == []
    runner.model.backbone.requires_grad_(False)
    assert look() == []  # no stitch leaves a parameter of the head


@pytest.mark.parametrize(
    ('kind', 'options', 'refused'),
    [
        (MaskFormerHead, dict(cast_dtype=None), True),
        (Mask2FormerHead, dict(cast_dtype=torch.float16), True),
        (MMSegHead, dict(cast_dtype=torch.float16), True),
        (MMSegHead, dict(cast_dtype=torch.bfloat16), False),
        (MMSegHead, {}, False),  # without --amp
        (EoMTHead, dict(cast_dtype=torch.float16), False),
    ],
)
def test_check_training_mask_losses_float16_rejected(kind, options, refused):
    head = kind.__new__(kind)
    nn.Module.__init__(head)
    head.weight = nn.Parameter(torch.zeros(1))
    parts = dict(model=nn.ModuleList([head]), hooks=())
    runner = SimpleNamespace(optim_wrapper=SimpleNamespace(**options), **parts)
    refusal = pytest.raises(ValueError, match=r'optim_wrapper\.dtype')
    with refusal if refused else nullcontext():
        assert [*training_check._gradients(runner)] == []


def test_training_check_hook_logs_parameters(stitched_cfg, tmp_path):
    for anchor in stitched_cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    runner, warned = ready(stitched_cfg)
    said, runner._hooks = [], []
    runner.logger.info = said.append
    training_check.TrainingCheckHook().before_train(runner)
    # qkv and proj of two blocks x 8 and four x 12 channels, rank 4.
    counted = f'backbone.anchors {24 * (2 * 8 + 4 * 12):,} of '
    assert any(counted in text for text in said)
    assert any('Only stitch 1 will be trained: there is no' in text for text in warned)


@pytest.mark.parametrize(
    ('base', 'counts', 'sampled', 'batch', 'warns'),
    [(8, 1, False, 2, True), (6, 3, False, 6, False), (8, 1, True, 4, True)],
)
def test_batch_warns_of_another_batch(base, counts, sampled, batch, warns):
    """Also of a batch sampler, as in most configs of mmdet, whose loaders know none."""
    said = []
    size = dict(batch_size=None if sampled else 2)
    runner = SimpleNamespace(
        train_dataloader=SimpleNamespace(
            **size, batch_sampler=SimpleNamespace(batch_size=4)
        ),
        optim_wrapper=SimpleNamespace(_accumulative_counts=counts),
        model=nn.Linear(1, 1),
        cfg=dict(auto_scale_lr=dict(base_batch_size=base)),
        logger=SimpleNamespace(info=said.append),
    )
    warned = [*training_check._batch(runner)]
    assert said[0].startswith(f'Batch of {batch}: ')
    assert [f'made for batches of {base} ' in text for text in warned] == [True] * warns


def test_train_again_when_finished(plain_cfg, capsys):
    run.train(plain_cfg)
    run.train(plain_cfg, resume=True)
    assert 'Nothing is left to train: the resumed' in capsys.readouterr().out
