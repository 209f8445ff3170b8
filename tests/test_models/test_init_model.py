import copy
import re

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from segmentor import segmentor_config, write_weights
from torch import nn

from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.models.init_model import init_model


@pytest.fixture
def cfg():
    pytest.importorskip('mmseg')
    return segmentor_config()


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp('weights') / 'seg.pth'
    return write_weights(segmentor_config(), path)


def by_hand(cfg, checkpoint, stitch):
    """The same model without any function of ours but the switch."""
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    model.load_state_dict(torch.load(checkpoint)['state_dict'])
    set_stitch(model, stitch)
    return nn.SyncBatchNorm.convert_sync_batchnorm(model).eval()


@torch.no_grad()
@pytest.mark.parametrize('stitch', [None, 3])
def test_init_model_weights_and_stitch_asked_for(cfg, checkpoint, tmp_path, stitch):
    weights, inputs = torch.load(checkpoint)['state_dict'], torch.randn(1, 3, 32, 48)
    wrapped = {f'module.{k}': v for k, v in weights.items()}  # as DDP saves them
    torch.save(wrapped | dict(auxiliary=torch.zeros(9)), tmp_path / 'a.pth')
    path = checkpoint if stitch else tmp_path / 'a.pth'
    model = init_model(cfg, path, stitch=stitch, device='cpu')
    stitch = stitch or 1  # the slow anchor
    wanted = by_hand(cfg, checkpoint, stitch).backbone(inputs)[0]
    assert torch.equal(model.backbone(inputs)[0], wanted)
    assert find_stitched_backbone(model).active_stitch.id == stitch
    assert not any(m.training for m in model.modules())
    # A CPU cannot synchronise batch norms.
    assert nn.SyncBatchNorm not in {type(m) for m in model.modules()}


def test_init_model_classes_of_checkpoint_or_config(cfg, checkpoint, tmp_path):
    model = init_model(cfg, checkpoint, device='cpu')
    palette = [(10, 20, 30), (200, 0, 0), (0, 0, 200)]
    assert model.dataset_meta == dict(classes=('sky', 'road', 'car'), palette=palette)
    known = dict(classes=('a', 'b', 'c'), palette=[[1, 2, 3]] * 3)
    state_dict = torch.load(checkpoint)['state_dict']
    meta = dict(dataset_meta=known | dict(reduce_zero_label=False))
    torch.save(dict(state_dict=state_dict, meta=meta), tmp_path / 'a.pth')
    found = init_model(cfg, tmp_path / 'a.pth', device='cpu').dataset_meta
    assert found == known | dict(palette=[(1, 2, 3)] * 3)
    # Every class gets a colour.
    cfg.test_dataloader.dataset.metainfo = dict(classes=('road', 'moss', 'car'))
    cfg.test_dataloader.dataset.type = 'CityscapesDataset'
    found = init_model(cfg, checkpoint, device='cpu').dataset_meta
    assert found['classes'] == ('road', 'moss', 'car')
    assert found['palette'][::2] == [(128, 64, 128), (0, 0, 142)]
    assert len(found['palette'][1]) == 3


def test_init_model_without_stitched_backbone(cfg, tmp_path):
    anchor = cfg.model.backbone.anchors[1]
    cfg.model.backbone = anchor
    plain = init_model(cfg, None, device='cpu')
    torch.save(dict(state_dict=plain.state_dict()), tmp_path / 'a.pth')
    again = init_model(cfg, tmp_path / 'a.pth', device='cpu')
    for key, value in plain.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)
    with pytest.raises(ValueError, match='with 0.* is invalid'):
        init_model(cfg, tmp_path / 'a.pth', stitch=0, device='cpu')


@pytest.mark.parametrize(
    ('key', 'value', 'words'),
    [
        ('anchors', None, 'qkv.lora_A .*anchors.lora'),
        ('plugins', dict(type='StitchLoRA', ranks=(2, 2)), 'stitch_lora.*.plugins'),
    ],
)
def test_init_model_weights_of_absent_additions_raise(cfg, tmp_path, key, value, words):
    """Weights that are nothing without what was added."""
    plain, backbone = copy.deepcopy(cfg), cfg.model.backbone
    if key == 'plugins':
        backbone.plugins = dict(stitch_lora=value)
    else:
        for anchor in backbone.anchors:
            anchor.lora = dict(rank=2)
    torch.save(init_model(cfg, None, device='cpu').state_dict(), tmp_path / 'a.pth')
    init_model(cfg, tmp_path / 'a.pth', device='cpu')
    with pytest.raises(ValueError, match=words):
        init_model(plain, tmp_path / 'a.pth', device='cpu')


@pytest.mark.parametrize(
    'reason',
    [
        'The NVIDIA driver on your system is too old (found version 11040)',
        'No CUDA GPUs are available',
    ],
)
def test_init_model_says_why_device_is_unusable(monkeypatch, reason):
    def fail():
        raise RuntimeError(f'{reason}. Please update your driver.\nSee ...')

    monkeypatch.setattr(torch.cuda, '_lazy_init', fail)
    words = rf"device='cuda' is invalid: .*: {re.escape(reason)} \(option: --device\)$"
    with pytest.raises(ValueError, match=words):
        init_model(segmentor_config(), None, device='cuda')
