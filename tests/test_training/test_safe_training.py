"""Whatever trains through tools/train.py is safe."""

import pytest
from mmengine.config import Config
from mmengine.hooks import CheckpointHook
from tiny import tiny_config

from snnet_mm.utils import make_safe, set_resume


def stock_config():
    """As mm's own: stock hooks, loaders without seeds, and no seed of the run."""
    cfg = tiny_config()
    hooks = cfg.default_hooks
    names = 'exact_resume', 'label_check', 'loss_check', 'trainable_params'
    for name in (*names, 'stitch_report', 'stitch_statistics'):
        del hooks[name]
    hooks.checkpoint = dict(type='CheckpointHook', by_epoch=False, interval=1)
    hooks.checkpoint.max_keep_ckpts = 2
    loader = cfg.train_dataloader
    loader.dataset.type = loader.dataset.pop('of')
    loader.sampler = dict(type='InfiniteSampler', shuffle=True)
    cfg.pop('randomness')
    return cfg


def test_stock_hooks_give_way_to_safe_ones():
    cfg = stock_config()
    assert make_safe(cfg) == [
        'StitchCheckpointHook', 'ExactResumeHook', 'SeededDataset and SeededSampler',
        'randomness.seed=0', 'LabelCheckHook', 'LossCheckHook',
    ]  # fmt: skip
    wanted = dict(type='StitchCheckpointHook', by_epoch=False, interval=1)
    assert cfg.default_hooks.checkpoint == dict(wanted, max_keep_ckpts=2)
    loader = cfg.train_dataloader
    sampler = dict(type='SeededSampler', of='InfiniteSampler', shuffle=True)
    assert (loader.sampler, loader.dataset.of) == (sampler, 'ToyScenes')
    before = cfg.to_dict()
    assert make_safe(cfg) == []
    assert cfg.to_dict() == before
    assert make_safe(tiny_config()) == []


@pytest.mark.parametrize(
    'hooks, checkpoint',
    [
        (None, dict(type='StitchCheckpointHook', interval=1)),
        (
            dict(checkpoint=dict(type=CheckpointHook, save_best='auto')),
            dict(type='StitchCheckpointHook', interval=-1, save_best='auto'),
        ),
        (dict(checkpoint=None), None),
        (dict(checkpoint=dict(type='MyHook')), dict(type='MyHook')),
    ],
)
def test_settings_of_checkpoints_stay(hooks, checkpoint):
    loader = dict(dataset=dict(type='A'), sampler=dict(type='MySampler'))
    model = dict(language_model=dict())
    cfg = dict(model=model, train_dataloader=loader, default_hooks=hooks)
    cfg |= dict(custom_hooks=[dict(type='EMAHook')], randomness=dict(seed=3))
    cfg = Config(cfg)
    make_safe(cfg)
    assert cfg.default_hooks.get('checkpoint') == checkpoint
    assert cfg.default_hooks.keys() <= {'checkpoint', 'exact_resume', 'loss_check'}
    assert cfg.train_dataloader == loader
    assert cfg.randomness.seed == 3


@pytest.mark.parametrize('safe', [True, False])
def test_train_adds_what_is_safe_unless_asked_otherwise(run_here, tmp_path, safe):
    """As the README promises; resumed trainings are exact then."""
    cfg = stock_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.dump(tmp_path / 'config.py')
    folder, options = tmp_path / 'work', [] if safe else ['--plain-hooks']
    said = run_here('train.py', tmp_path / 'config.py', '--work-dir', folder, *options)
    assert ('Safe training (--plain-hooks disables it): StitchCheck' in said) is safe
    last, test = said.splitlines()[-2:]
    assert last == f'Checkpoint: {folder}/iter_1.pth'
    arguments = f'{tmp_path}/config.py {folder}/iter_1.pth'
    assert test == f'Next: python tools/test.py {arguments} --stitch-id all'


@pytest.mark.parametrize(
    ('asked', 'resume', 'note', 'options', 'resumes', 'keeps'),
    [
        (None, True, True, {}, True, True),  # as the config says
        (False, True, True, {}, False, True),
        (True, False, False, {}, False, True),  # begins with the weights
        (True, False, True, {}, True, False),  # goes on from its own
        (True, False, True, dict(load_from='a.pth'), True, True),
    ],
)
def test_set_resume_of_a_config_with_load_from(
    tmp_path, asked, resume, note, options, resumes, keeps
):
    """Fine-tuning resumes its own checkpoint, unless another is named to be resumed."""
    if note:
        (tmp_path / 'last_checkpoint').write_text('iter_1.pth')
    cfg = Config(dict(work_dir=str(tmp_path), load_from='a.pth', resume=resume))
    set_resume(cfg, asked, options)
    assert (cfg.resume, cfg.load_from) == (resumes, 'a.pth' if keeps else None)
