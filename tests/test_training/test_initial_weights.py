import copy

import pytest
import torch
from mmengine.runner import Runner
from ready import ready

from snnet_mm.anchors import PlainViT
from snnet_mm.training import run
from snnet_mm.training.initial_weights import check_initial_weights


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


@pytest.mark.parametrize(
    ('key', 'name'),
    [*(('load_from', name) for name in FILES), ('init_cfg', 'one_anchor')],
)
def test_train_weights_that_fill_no_anchor(stitched_cfg, tmp_path, capsys, key, name):
    change, outcome, random = FILES[name]
    model = Runner.from_cfg(copy.deepcopy(stitched_cfg)).model
    path = save_part(tmp_path / 'a.pth', model, change)
    if key == 'load_from':
        stitched_cfg.load_from = path
    else:  # of the whole model
        stitched_cfg.model.init_cfg = dict(type='Pretrained', checkpoint=path)
    words = f'These anchors start from random weights: {", ".join(random)}. {path}'
    if outcome == 'refused':
        with pytest.raises(ValueError, match=words):
            run.train(stitched_cfg)
        return
    run.train(stitched_cfg)
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
        with pytest.raises(ValueError, match=r'The backbone starts .*a\.pth'):
            run.train(plain_cfg)
        # Weights of the backbone itself come from elsewhere.
        source = dict(type='Pretrained', checkpoint=str(plain[1]), prefix='backbone.')
        plain_cfg.model.backbone.init_cfg = source
        assert run.train(plain_cfg).iter == 1


def test_check_training_pretrained_anchors(stitched_cfg):
    """Of an anchor, a part of one, the model, and a head alone."""
    runner, _ = ready(stitched_cfg)
    backbone = runner.model.backbone
    source = [dict(type='Pretrained', checkpoint='not read.pth')]
    for part, left in (
        (backbone.anchors[0], 'slow'),
        (backbone.anchors[1].blocks[0], 'fast'),
        (runner.model.decode_head, 'fast, slow'),
    ):
        before, part.init_cfg = getattr(part, 'init_cfg', None), source
        (text,) = check_initial_weights(runner, None)
        assert text.startswith(f'These anchors start from random weights: {left}. ')
        part.init_cfg = before
