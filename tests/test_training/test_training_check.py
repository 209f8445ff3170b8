"""Trainings that cannot mean anything, found before their first iteration."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from mmdet.models.dense_heads import Mask2FormerHead, MaskFormerHead
from mmengine.model import MMDistributedDataParallel
from mmengine.runner import Runner
from mmseg.models.decode_heads import Mask2FormerHead as MMSegHead
from tiny import tiny_config
from torch import nn
from trained_toys import write_trained

from snnet_mm.anchors import PlainViT
from snnet_mm.tasks.detection_parts.eomt import EoMTHead
from snnet_mm.training import run, training_check
from snnet_mm.training.training_check import check_training
from snnet_mm.utils import load_config

DATA, LOOP = 'train_dataloader', 'train_cfg'
EPOCHS = {
    LOOP: dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=1),
    'log_processor.by_epoch': True,
}
POLY = dict(type='PolyLR', eta_min=0, power=1.0, begin=0, end=4, by_epoch=False)
COSINE = dict(type='CosineAnnealingLR', T_max=3, eta_min=0, end=4, by_epoch=False)


@pytest.fixture
def cfg(tmp_path):
    """Trains a stitched segmentor for an iteration."""
    cfg = tiny_config()
    cfg.work_dir = str(tmp_path / 'work')
    cfg.default_hooks.pop('stitch_statistics')
    cfg.log_level = 'WARNING'
    return cfg


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """Config and weights of a plain segmentor."""
    return write_trained('seg', tmp_path_factory.mktemp('plain'))


@pytest.fixture
def plain_cfg(plain, tmp_path):
    """Trains a plain segmentor for an iteration."""
    cfg = load_config(plain[0], dict(work_dir=str(tmp_path / 'work')))
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.optim_wrapper.type, cfg.log_level = 'OptimWrapper', 'WARNING'
    return cfg


def ready(cfg):
    """A runner as before its first iteration, and its warnings."""
    runner, warned = Runner.from_cfg(copy.deepcopy(cfg)), []
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    if runner.param_schedulers:
        schedulers = runner.build_param_scheduler(runner.param_schedulers)
        runner.param_schedulers = schedulers
    runner.logger = SimpleNamespace(warning=warned.append, info=lambda text: None)
    return runner, warned


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        (EPOCHS, r"\['InfiniteSampler'\].*EpochBased.*train_dataloader\.sampler"),
        (
            {'val_dataloader.sampler': dict(type='InfiniteSampler')},
            r'StitchValLoop.*val_dataloader\.sampler',
        ),
        (
            {
                f'{DATA}.sampler': dict(of='DefaultSampler'),
                f'{DATA}.batch_size': 9,
                f'{DATA}.drop_last': True,
            },
            'batch_size=9 .*: expected up to 4.*drop_last',
        ),
        (
            {'model.backbone.anchors': 'frozen'},
            'lora.*=0 is .*all [0-9,]+ of the model are frozen',
        ),
        (
            {'val_evaluator': dict(iou_metrics=['mIoU', 'mIou'])},
            r'mIou.*val_evaluator',
        ),
        (
            {'default_hooks.checkpoint.save_best': 'mIou'},
            r"save_best='mIou' .*did you mean 'mIoU'",
        ),
    ],
)
def test_train_refuses_before_the_first_iteration(cfg, changes, words):
    if 'model.backbone.anchors' in changes:
        runner, _ = ready(cfg)
        runner.model.requires_grad_(False)
    else:
        cfg.merge_from_dict(changes)
        if changes is EPOCHS:
            cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
        with pytest.raises(ValueError, match=words):
            runner = run.train(cfg)
        return
    with pytest.raises(ValueError, match=words):
        check_training(runner)


def test_check_training_says_all_in_order(cfg):
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)
    cfg.param_scheduler = [dict(POLY, end=2)]
    cfg.model.decode_head.num_classes = 4
    cfg.optim_wraper = dict(optimizer=dict(lr=1))
    runner, warned = ready(cfg)
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
def test_check_training_schedules_that_end_at_0(cfg, schedule, steps, words):
    cfg.param_scheduler, cfg.train_cfg.max_iters = [schedule], steps
    runner, warned = ready(cfg)
    before = copy.deepcopy(runner.param_schedulers[0].state_dict())
    rates = runner.optim_wrapper.get_lr()
    check_training(runner)
    said = [text for text in warned if 'rate' in text or 'epochs' in text]
    assert len(said) == (words is not None)
    assert not words or words in said[0]
    assert runner.param_schedulers[0].state_dict() == before
    assert runner.optim_wrapper.get_lr() == rates


@pytest.mark.parametrize('rescaled', [True, False])
def test_train_resumed_after_the_end_of_its_schedule(plain_cfg, rescaled):
    """``--iters`` rescales it; a longer ``max_iters`` alone would train at rate 0."""
    cfg = plain_cfg
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.5, begin=0, end=2, by_epoch=False),
        dict(POLY, begin=2),
    ]
    cfg.optim_wrapper.optimizer.lr = 1e-3
    cfg.default_hooks.checkpoint.interval = 100
    cfg.train_cfg.update(max_iters=4, val_interval=100)
    first = run.train(cfg)
    start = copy.deepcopy(first.model.state_dict())
    assert first.optim_wrapper.get_lr()['lr'][0] == 0
    if not rescaled:
        cfg.train_cfg.max_iters = 8
        with pytest.raises(ValueError, match=r'end=4 .*: expected .* 8 .*--iters'):
            run.train(cfg, resume=True)
        return
    again = run.train(cfg, resume=True, iters=8)
    assert again.iter == 8
    trained = [name for name, _ in again.model.named_parameters()]
    state = again.model.state_dict()
    assert not any(state[name].equal(start[name]) for name in trained)


def save_part(path, model, change):
    """Write the weights of a model under other names; None drops one."""
    named = ((change(key), value) for key, value in model.state_dict().items())
    torch.save(dict(state_dict={k: v for k, v in named if k}), path)
    return str(path)


# Names in a checkpoint of those of a stitched segmentor: what is refused or said of it.
FILES = dict(
    another_backbone=(
        lambda k: k.replace('anchors.', 'layers.'), 'refused', ['fast', 'slow']
    ),
    wrapped=(lambda k: f'module.{k}', None, []),
    wrong_prefix=(
        lambda k: f'model.{k}' if 'anchors' in k else k, 'refused', ['fast', 'slow']
    ),
    one_anchor=(lambda k: k if 'anchors.0' not in k else None, 'said', ['fast']),
    head=(lambda k: k if 'decode_head' in k else None, 'refused', ['fast', 'slow']),
)  # fmt: skip


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('key', ['load_from', 'init_cfg'])
def test_train_weights_that_fill_no_anchor(cfg, tmp_path, capsys, name, key):
    change, outcome, random = FILES[name]
    model = Runner.from_cfg(copy.deepcopy(cfg)).model
    path = save_part(tmp_path / 'a.pth', model, change)
    if key == 'load_from':
        cfg.load_from = path
    else:  # of the whole model
        cfg.model.init_cfg = dict(type='Pretrained', checkpoint=path)
    words = f'These anchors start from random weights: {", ".join(random)}. {path}'
    if outcome == 'refused':
        with pytest.raises(ValueError, match=words):
            run.train(cfg)
        return
    run.train(cfg)
    printed = capsys.readouterr().out
    assert ('start from random weights' in printed) is bool(random)
    assert not random or words in printed


def test_train_weights_that_a_backbone_renames(plain_cfg, plain, tmp_path, monkeypatch):
    """As mm's backbones do whose modules have hooks for older files."""
    load = PlainViT._load_from_state_dict

    def rename(self, state_dict, prefix, *args):
        for key in [k for k in state_dict if k.startswith('backbone.old.')]:
            state_dict[key.replace('.old', '')] = state_dict.pop(key)
        load(self, state_dict, prefix, *args)

    monkeypatch.setattr(PlainViT, '_load_from_state_dict', rename)
    weights = torch.load(plain[1])['state_dict']
    weights = {k.replace('backbone.', 'backbone.old.'): v for k, v in weights.items()}
    torch.save(weights, tmp_path / 'a.pth')
    plain_cfg.load_from = str(tmp_path / 'a.pth')
    assert run.train(plain_cfg).iter == 1


@pytest.mark.parametrize('fits', [True, False])
def test_train_weights_of_another_plain_backbone(plain_cfg, plain, tmp_path, fits):
    weights = torch.load(plain[1])['state_dict']
    if not fits:
        weights = {k.replace('backbone.', 'encoder.'): v for k, v in weights.items()}
    torch.save(weights, tmp_path / 'a.pth')
    plain_cfg.load_from = str(tmp_path / 'a.pth')
    if fits:
        assert run.train(plain_cfg).iter == 1
    else:
        words = r'The backbone starts from random weights\. .*a\.pth'
        with pytest.raises(ValueError, match=words):
            run.train(plain_cfg)
        # Weights of the backbone itself come from elsewhere.
        source = dict(type='Pretrained', checkpoint=str(plain[1]), prefix='backbone.')
        plain_cfg.model.backbone.init_cfg = source
        assert run.train(plain_cfg).iter == 1


def test_check_training_pretrained_anchors(cfg):
    """Of an anchor, a part of one, the model, and a head alone."""
    runner, _ = ready(cfg)
    backbone = runner.model.backbone
    source = [dict(type='Pretrained', checkpoint='not read.pth')]
    for part, left in (
        (backbone.anchors[0], 'slow'),
        (backbone.anchors[1].blocks[0], 'fast'),
        (runner.model.decode_head, 'fast, slow'),
    ):
        before, part.init_cfg = getattr(part, 'init_cfg', None), source
        (text,) = training_check._weights(runner, None)
        assert text.startswith(f'These anchors start from random weights: {left}. ')
        part.init_cfg = before


@pytest.fixture
def alone():
    """A process group of one process."""
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_check_training_ranks_find_unused_parameters(cfg, alone):
    runner, _ = ready(cfg)

    def look(**settings):
        model = MMDistributedDataParallel(runner.model, device_ids=None, **settings)
        parts = dict(hooks=runner.hooks, optim_wrapper=runner.optim_wrapper)
        return [*training_check._gradients(SimpleNamespace(model=model, **parts))]

    with pytest.raises(ValueError, match='find_unused_parameters=False is invalid'):
        look()
    assert look(find_unused_parameters=True) == look(static_graph=True) == []
    runner.model.backbone.requires_grad_(False)
    assert look() == []  # no stitch leaves a parameter of the head


@pytest.mark.parametrize('kind', [MaskFormerHead, Mask2FormerHead, MMSegHead, EoMTHead])
@pytest.mark.parametrize('dtype', ['none', None, torch.float16, torch.bfloat16])
def test_check_training_mask_losses_float16_rejected(kind, dtype):
    head = kind.__new__(kind)
    nn.Module.__init__(head)
    head.weight = nn.Parameter(torch.zeros(1))
    options = {} if dtype == 'none' else dict(cast_dtype=dtype)  # without --amp
    runner = SimpleNamespace(
        model=nn.ModuleList([head]), optim_wrapper=SimpleNamespace(**options), hooks=()
    )
    wrong = dtype in (None, torch.float16) and kind is not EoMTHead
    if wrong:
        with pytest.raises(ValueError, match=r'optim_wrapper\.dtype'):
            [*training_check._gradients(runner)]
    else:
        assert [*training_check._gradients(runner)] == []


def test_training_check_hook_logs_parameters(cfg, tmp_path):
    for anchor in cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    runner, warned = ready(cfg)
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
