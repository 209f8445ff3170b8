import ast
import copy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mmengine.config import Config, ConfigDict

from snnet_mm.models import ModelWrapper
from snnet_mm.utils import load_config, model_config
from snnet_mm.utils.configs import (
    digest_of_settings,
    innermost,
    innermost_parts,
    misspelt_keys,
    runner_config,
    write_config,
)


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f'{name}.py').write_text(text)


def test_load_config_merges_bases_and_options(tmp_path):
    model = "model = dict(type='A', backbone=dict(type='B'))\n"
    write(tmp_path, a=f'{model}x = 1', b="_base_ = './a.py'\ny = 2")
    cfg = load_config(tmp_path / 'b.py', {'model.backbone.type': 'C'})
    assert cfg.to_dict() == dict(
        model=dict(type='A', backbone=dict(type='C')), x=1, y=2
    )


def test_load_config_colours_are_for_visualizers(tmp_path):
    palette = [[1, 2, 3]]
    part = f'dict(metainfo=dict(palette={palette}))'
    write(tmp_path, a=f'palette = {palette}\nx = dict(datasets=[{part}])\n')
    cfg = load_config(tmp_path / 'a.py')
    wanted = [(1, 2, 3)]
    assert cfg.palette == cfg.x.datasets[0].metainfo.palette == wanted
    write(tmp_path, a="palette = 'random'")
    assert load_config(tmp_path / 'a.py').palette == 'random'


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('b.py', '', r'b\.py .*\(argument: config\)'),
        ('a.py', 'x = (', r'a\.py .*SyntaxError'),
        ('a.py', "_base_ = 'no_package::a/b.py'", 'a.py cannot be .*no_package'),
        ('a.py', 'hooks = [dict(a=1)]', r'hooks.3.a.*a.py.*--cfg-options'),
        ('no_package::a.py', '', "'no_package::a.py'"),
    ],
)
def test_load_config_what_cannot_be_read_is_named(
    tmp_path, monkeypatch, name, text, message
):
    write(tmp_path, a=text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_config(name, {'hooks.3.a': 2})


@pytest.mark.parametrize('place', ['beside', 'current'])
def test_load_config_finds_modules(tmp_path, monkeypatch, place):
    monkeypatch.setattr(sys, 'path', [*sys.path])
    here, module = tmp_path / 'here', f'part_{place}'
    for folder in ('here', 'beside', 'current', 'other'):
        (tmp_path / folder).mkdir()
    (tmp_path / place / f'{module}.py').write_text('def late(): import sibling')
    (tmp_path / place / 'sibling.py').touch()
    write(tmp_path / 'beside', a=f'custom_imports = dict(imports={module!r})')
    monkeypatch.chdir(tmp_path / 'current')
    cfg = load_config('../beside/a.py')
    sys.modules[module].late()
    del sys.modules['sibling']
    assert str(tmp_path / place) in sys.path
    unused = {'beside': 'current', 'current': 'beside'}[place]
    assert str(tmp_path / unused) not in sys.path
    write_config(cfg, here / 'b.py', '# head\n')
    code = 'from mmengine.config import Config\n'
    code += "print(Config.fromfile('b.py').custom_imports.imports)"
    run = subprocess.run(
        [sys.executable, '-c', code], cwd=here, capture_output=True, text=True
    )
    assert run.stdout == f'{module}\n', run.stderr


def test_load_config_prefers_installed_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'path', before := [*sys.path])
    (tmp_path / 'colorsys.py').write_text('raise RuntimeError')
    write(tmp_path, a="custom_imports = dict(imports=['colorsys'])")
    monkeypatch.delitem(sys.modules, 'colorsys', raising=False)
    load_config(tmp_path / 'a.py')
    assert sys.path == before
    write(tmp_path, a="custom_imports = dict(imports=['no_such_module'])")
    with pytest.raises(ImportError, match='no_such_module'):
        load_config(tmp_path / 'a.py')
    assert sys.path == before


def test_innermost_parts_of_a_concatenated_data_set():
    a, b, c = (dict(type='A', pipeline=[i]) for i in range(3))
    nested = dict(type='RepeatDataset', dataset=dict(datasets=[b, dict(dataset=c)]))
    dataset = ConfigDict(type='ConcatDataset', datasets=[a, nested])
    assert innermost_parts(dataset) == [a, b, c]
    assert innermost(dataset) == a


@pytest.mark.parametrize(
    ('model', 'message'),
    [
        # Costs and exports know the maps of the stitched network, not of the outer one.
        (
            "backbone=dict(backbone_cfg=dict(type='SNNetv1', anchors=[]))",
            "'SNNetv1'.*backbone_cfg",
        ),
        # mmseg would pass it on to the backbone, which has no such setting.
        (
            "pretrained='a.pth', backbone=dict(type='SNNetv2', anchors=[])",
            "'a.pth'.*pretrained",
        ),
    ],
)
def test_load_config_misplaced_stitched_networks_are_refused(tmp_path, model, message):
    write(tmp_path, a=f'model = dict({model})')
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / 'a.py')


@pytest.mark.parametrize(
    ('change', 'same'),
    [
        (dict(model=dict(b=2)), False),
        (dict(data_preprocessor=dict(mean=[1])), False),
        (dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type='Pad')]))), False),
        (dict(test_dataloader=dict(dataset=dict(data_root='moved'))), True),
        (dict(train_cfg=dict(max_iters=3), work_dir='b'), True),
    ],
)
def test_digest_of_settings_is_of_model_and_pipeline(change, same):
    load = dict(type='LoadImageFromFile')
    data = dict(type='ADE20KDataset', data_root='a', pipeline=[load])
    cfg = Config(dict(model=dict(type='A', b=1), test_dataloader=dict(dataset=data)))
    other = copy.deepcopy(cfg)
    other.merge_from_dict(change)
    assert (digest_of_settings(other) == digest_of_settings(cfg)) is same


def test_model_config_is_that_inside_wrappers():
    inner = dict(type='ImageClassifier', backbone=dict(type='PlainViT'))
    wrapped = dict(type='SandwichWrapper', model=dict(type=ModelWrapper, model=inner))
    assert model_config(Config(dict(model=wrapped))) == inner
    # As in mmengine's Runner, the model's own preprocessor comes first.
    cfg, own = Config(dict(model=wrapped, data_preprocessor=dict(pad=1))), dict(pad=2)
    assert model_config(cfg) == inner | dict(data_preprocessor=dict(pad=1))
    inner['data_preprocessor'] = cfg.model.model.model.data_preprocessor = own
    assert model_config(cfg) == inner
    assert model_config(Config(dict(model=dict(type='TTA', module=inner)))) == inner


@pytest.mark.parametrize(
    ('key', 'meant'),
    [
        ('optim_wraper', 'optim_wrapper'),
        ('val_dataloder', 'val_dataloader'),
        ('param_schedulers', 'param_scheduler'),
        ('default_hook', 'default_hooks'),
        ('load_form', 'load_from'),
    ],
)
def test_misspelt_keys_of_runners(tmp_path, capsys, key, meant):
    write(tmp_path, a=f"model = dict(type='A')\n{key} = dict(a=1)", b='model = dict()')
    cfg = load_config(tmp_path / 'a.py')
    (text,) = misspelt_keys(cfg)
    assert text.startswith(f'Nothing reads {key}: did you mean {meant}?')
    with pytest.raises(ValueError, match=f"'{key}' is invalid: expected {meant}, or"):
        load_config(tmp_path / 'b.py', {f'{key}.a': 1})
    assert 'nothing reads' not in capsys.readouterr().out


def test_variables_of_configs_are_free(tmp_path, capsys):
    """Overriding one has no effect: mmengine has put it into what uses it."""
    names = (
        'data_root',
        'classes',
        'norm_cfg',
        'train_pipeline',
        'max_epochs',
        'optimizer',
    )
    write(tmp_path, a='\n'.join(f'{name} = 1' for name in ('models', *names)))
    cfg = load_config(tmp_path / 'a.py', dict(data_root=2))
    assert [*misspelt_keys(cfg)] == []
    out = '--cfg-options data_root: a variable of configs, which nothing reads.\n'
    assert capsys.readouterr().out == out


@pytest.mark.slow
def test_misspelt_keys_are_in_no_config_of_mm():
    """Nor in one of ours."""
    names = {}
    for package in ('mmseg', 'mmdet', 'mmpretrain', 'snnet_mm'):
        folder = Path(find_spec(package).origin).parent / '.mim/configs'
        for path in folder.rglob('*.py'):
            tree = ast.parse(path.read_text())
            targets = (t for node in tree.body for t in getattr(node, 'targets', ()))
            found = (t.id for t in targets if isinstance(t, ast.Name))
            names |= dict.fromkeys(found)
    assert len(names) > 200
    assert [*misspelt_keys(Config({k: 0 for k in names if k[0] != '_'}))] == []


def test_load_config_overrides_a_copy_of_a_config():
    given = Config(dict(model=dict(type='A', depth=2), default_scope='mmseg'))
    found = load_config(given, {'model.depth': 3})
    assert (found.model.depth, given.model.depth) == (3, 2)
    with pytest.raises(ValueError, match="cfg-options='optim_wraper'"):
        load_config(given, {'optim_wraper.type': 'A'})


def test_work_dir_is_named_after_config(tmp_path):
    write(tmp_path, elastic='a = 1', mine='a = 1')
    elastic, mine = (tmp_path / f'{name}.py' for name in ('elastic', 'mine'))
    assert runner_config(mine).work_dir == 'work_dirs/mine'
    assert runner_config(elastic).work_dir == 'work_dirs/elastic'
    (tmp_path / 'elastic.pth').touch()
    (tmp_path / 'mine.pth').touch()
    assert runner_config(mine).work_dir == 'work_dirs/mine'
    assert runner_config(elastic).work_dir == str(tmp_path / 'test')
    assert runner_config(elastic, 'here').work_dir == 'here'
    cfg = runner_config(elastic, options=dict(work_dir='there'))
    assert cfg.work_dir == 'there'
