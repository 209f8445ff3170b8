"""Checkpoints that hold what is new and name the file of the rest."""

import pytest
import torch
from mmengine.runner import load_checkpoint

from snnet_mm.utils import guard_checkpoints, load_weights_only
from snnet_mm.utils.base_checkpoint import BaseCheckpoint, weights_digest

RENAMES = {'backbone.': 'backbone.anchors.0.', 'head.': 'head.parts.0.'}


@pytest.fixture
def base(tmp_path):
    """A checkpoint of mmengine, and its weights."""
    weights = {
        'backbone.a': torch.randn(3, 2),
        'backbone.backbone.b': torch.tensor(True),
        'head.c': torch.randn(2, dtype=torch.bfloat16),
        'head.empty': torch.zeros(0),
    }
    path = tmp_path / 'net' / 'net.pth'
    path.parent.mkdir()
    torch.save(dict(meta=dict(epoch=3), state_dict=weights), path)
    return path, weights


def save(path, base, meta=None, added=None):
    added = added or {'backbone.stitching_layers.x': torch.ones(2)}
    path.parent.mkdir(exist_ok=True)
    BaseCheckpoint(*base, RENAMES).save_added(path, added, meta or {})
    return path


def test_save_added_both_files_are_read_as_one(base, tmp_path, monkeypatch):
    meta = dict(dataset_meta=dict(classes=('a', 'b')))
    path = save(tmp_path / 'elastic' / 'elastic.pth', base, meta)
    monkeypatch.chdir(tmp_path / 'elastic')
    for file in (path, 'elastic.pth'):
        loaded = load_weights_only(file)
        assert loaded['meta'] == meta
        assert {k: v.tolist() for k, v in loaded['state_dict'].items()} == {
            'backbone.anchors.0.a': base[1]['backbone.a'].tolist(),
            'backbone.anchors.0.backbone.b': True,
            'head.parts.0.c': base[1]['head.c'].tolist(),
            'head.parts.0.empty': [],
            'backbone.stitching_layers.x': [1, 1],
        }
    record = torch.load(path, weights_only=True)
    assert [*record['state_dict']] == ['backbone.stitching_layers.x']
    assert record['meta']['base_checkpoint'] == dict(
        path='../net/net.pth', sha256=weights_digest(base[1]), renames=RENAMES
    )


def test_save_added_leaves_out_weights_of_the_base(base, tmp_path):
    new, known = torch.ones(1), torch.zeros(2)
    added = {'head.parts.0.c': known, 'head.c': new}  # of the base before and after
    path = save(tmp_path / 'first' / '1.pth', base, added=added)
    assert torch.load(path, weights_only=True)['state_dict'] == {'head.c': new}
    kept = load_weights_only(path)['state_dict']['head.parts.0.c']
    assert torch.equal(kept, base[1]['head.c'])


@pytest.mark.parametrize(
    'change',
    [
        lambda w: w['backbone.a'].add_(1e-6),
        lambda w: w.update({'backbone.a': w['backbone.a'].reshape(2, 3)}),
        lambda w: w.pop('head.empty'),
    ],
)
def test_load_weights_only_other_or_missing_base(base, tmp_path, change):
    path = save(tmp_path / 'e.pth', base)
    change(base[1])
    torch.save(dict(state_dict=base[1]), base[0])
    with pytest.raises(ValueError, match='net.pth, whose weights'):
        load_weights_only(path)
    base[0].unlink()
    with pytest.raises(ValueError, match='net.pth, .*--whole'):
        load_weights_only(path)
    with guard_checkpoints(), pytest.raises(ValueError, match='--whole.*load_from'):
        load_checkpoint(torch.nn.Linear(1, 1), str(path))
