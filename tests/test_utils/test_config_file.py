"""A config that cannot be meant so is refused before anything is built."""

import pytest
from mmengine.config import Config

from snnet_mm.utils import check_outline, load_config

MODEL = "model = dict(type='A', backbone=dict(type='B'))\n"


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f'{name}.py').write_text(text)


def test_bases_and_options_are_merged(tmp_path):
    write(tmp_path, a=f'{MODEL}x = 1', b="_base_ = './a.py'\ny = 2")
    cfg = load_config(tmp_path / 'b.py', {'model.backbone.type': 'C'})
    assert cfg.to_dict() == dict(
        model=dict(type='A', backbone=dict(type='C')), x=1, y=2
    )


@pytest.mark.parametrize(
    'texts, message',
    [
        (dict(b=''), r'config .*/a.py does not exist; there is b.py \(argument: conf'),
        (dict(), r'config .*/a.py does not exist \(argument: config\)'),
        (
            dict(a="_base_ = 'b.py'"),
            r'b.py, from which \S*a.py inherits, does',
        ),
        (dict(a="_base_ = './a.py'"), r'inherits itself: .*a.py -> .*a.py \('),
        (
            dict(a="_base_ = 'b.py'", b="_base_ = 'c.py'", c="_base_ = ['b.py']"),
            r'/b.py inherits itself: \S*/b.py -> \S*/c.py -> \S*/b.py \(config key: _b',
        ),
        (dict(a="_base_ = 'b.py'", b='x = ('), 'b.py.* cannot be read: SyntaxError'),
        (dict(a='_base_ = [3]'), r'_base_ of config .*a.py names 3'),
        (dict(a='_base_ = 3'), r'_base_ of config .*a.py names 3'),
        (dict(a='x = 1 / 0'), 'a.py cannot be read: ZeroDivisionError'),
        (
            dict(a="_base_ = ['b.py', 'c.py']", b=MODEL, c=MODEL),
            'a.py cannot be read: KeyError: .*Duplicate keys',
        ),
        (dict(a='x = 1'), r'the config has no model \(config key: model\)'),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, texts, message):
    write(tmp_path, **texts)
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / 'a.py')


def test_a_base_that_two_inherit_is_no_cycle(tmp_path):
    write(
        tmp_path,
        a="_base_ = ['b.py', 'c.py']\nx = _base_.y",
        b="_base_ = 'd.py'\ny = 1",
        c=MODEL,
        d='z = 3',
    )
    assert load_config(tmp_path / 'a.py').x == 1


def test_options_that_do_not_fit_are_said(tmp_path):
    write(tmp_path, a=f'{MODEL}hooks = [dict(a=1)]')
    with pytest.raises(ValueError, match=r'hooks.3.a.*--cfg-options'):
        load_config(tmp_path / 'a.py', {'hooks.3.a': 2})


@pytest.mark.parametrize(
    'option, message',
    [
        ('trian_cfg.max_iters', r'trian_cfg.max_iters: .* no trian_cfg.* is train_cfg'),
        ('optimizer.lr', 'no optimizer, .* is optim_wrapper meant'),
        ('fp16', r'no fp16, and nothing reads one \(option: --cfg-options'),
    ],
)
def test_options_that_nothing_reads_are_refused(tmp_path, option, message):
    write(tmp_path, a=f'{MODEL}x = 1')
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / 'a.py', {option: 2})
    cfg = load_config(tmp_path / 'a.py', {'x': 2, 'train_cfg.max_iters': 3})
    assert (cfg.x, cfg.train_cfg) == (2, dict(max_iters=3))


HOOK = dict(type='H')


@pytest.mark.parametrize(
    'changes, key',
    [
        (dict(custom_hook=[HOOK]), 'custom_hooks meant'),
        (dict(resolution=3, train_pipeline=[], resumed=1), 'resume meant'),
        (dict(resolution=3, train_pipeline=[]), None),
        (dict(load_frm='a.pth'), 'load_from meant'),
        (dict(trian_cfg={}, train_cfg={}), 'train_cfg meant'),
        (dict(train_dataloader=[1]), r'train_dataloader=\[1\]; wanted is a dict'),
        (dict(train_dataloader=dict(dataset=3)), 'key: train_dataloader.dataset'),
        (dict(test_dataloader=dict()), 'test_dataloader has no dataset'),
        (dict(val_evaluator='mIoU'), 'wanted is a dict or a list'),
        (dict(custom_hooks=HOOK), 'custom_hooks=.*wanted is a list'),
        (dict(custom_hooks=[HOOK, 'H']), r"custom_hooks.1='H'; wanted is a dict"),
        (dict(custom_hooks=[HOOK, {}]), r'no type \(config key: custom_hooks.1\)'),
        (dict(default_hooks=dict(logger=dict(x=1))), 'default_hooks.logger'),
        (dict(default_hooks=dict(logger=None)), None),
        (dict(custom_hooks=[dict(HOOK, a=[dict(type='')])]), r"hooks.0.a.0.type=''"),
        (dict(model=dict(type=3)), 'model.type=3; allowed is the name of a class'),
        (dict(model=dict(type=dict, backbone=None)), 'key: model.backbone'),
        (dict(resume='yes'), "resume='yes'; wanted is a bool"),
    ],
)
def test_the_outline(changes, key):
    cfg = Config(dict(model=dict(type='A', backbone=dict(type='B'))) | changes)
    if key is None:
        check_outline(cfg)
        return
    with pytest.raises(ValueError, match=key):
        check_outline(cfg)
