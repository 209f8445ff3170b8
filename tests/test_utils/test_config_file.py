import sys

import pytest

from snnet_mm.utils import check_ops_for, load_config


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f'{name}.py').write_text(text)


def test_bases_and_options_are_merged(tmp_path):
    model = "model = dict(type='A', backbone=dict(type='B'))\n"
    write(tmp_path, a=f'{model}x = 1', b="_base_ = './a.py'\ny = 2")
    cfg = load_config(tmp_path / 'b.py', {'model.backbone.type': 'C'})
    assert cfg.to_dict() == dict(
        model=dict(type='A', backbone=dict(type='C')), x=1, y=2
    )


@pytest.mark.parametrize(
    'texts, message',
    [
        (dict(), r'a.py cannot be read: FileNotFoundError: .*\(argument: config\)'),
        (dict(a='x = ('), 'a.py cannot be read: SyntaxError'),
        (dict(a="_base_ = 'no_package::a/b.py'"), 'a.py cannot be .*no_package'),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, texts, message):
    write(tmp_path, **texts)
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / 'a.py')


@pytest.mark.parametrize('name', ['no_package::a.py', '::a.py'])
def test_packages_that_are_not_there(name):
    with pytest.raises(ValueError, match=f"'{name}'; allowed: names in installed"):
        load_config(name)


def test_options_that_do_not_fit_are_said(tmp_path):
    write(tmp_path, a='hooks = [dict(a=1)]')
    with pytest.raises(ValueError, match=r'hooks.3.a.*a.py.*--cfg-options'):
        load_config(tmp_path / 'a.py', {'hooks.3.a': 2})


def test_an_mmcv_without_ops_is_refused_where_they_are_needed(monkeypatch):
    # None makes the import fail as a missing module does.
    monkeypatch.setitem(sys.modules, 'mmcv._ext', None)
    check_ops_for(dict(default_scope='mmseg'))
    check_ops_for({})
    with pytest.raises(ValueError, match='mmcv._ext.*`make test` builds .* pip wheel'):
        check_ops_for(dict(default_scope='mmdet'))
