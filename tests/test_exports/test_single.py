import pytest
import torch
from mmengine.registry import MODELS
from small import small
from torch import nn
from torch.testing import assert_close

from snnet_mm.costs import cost_table
from snnet_mm.evaluation import StitchTestLoop
from snnet_mm.exports import single_stitch
from snnet_mm.models import StitchingLayer

AUX = dict(type='FCNHead', in_channels=12, in_index=0, channels=8, num_convs=1)
AUX |= dict(num_classes=5, norm_cfg=dict(type='BN'))
WINDOWS = dict(window_size=3, global_blocks=(1,), decomposed_rel_pos=True)


# Depths 3 and 5: anchors 0 and 1, FS 2 and 3, SF 5 and 6, SFS 7, FSF 8. The chain has
# depths 2, 3 and 5: anchors 0 to 2, FS 3 and 6 to 7, SF 5 and 9 to 10, SFS 11, FSF 12.
OPTIONS = {
    'deit3': dict(),
    'registers': dict(
        anchor=dict(final_norm=True, num_registers=2, pos_embed_prefix=True)
    ),
    'beit': dict(anchor=dict(abs_pos_embed=False, rel_pos_bias=True, cls_token=False)),
    'vitdet': dict(anchor=dict(WINDOWS, cls_token=False)),
    'lora': dict(anchor=dict(lora=dict(rank=2, alpha=3, targets=('qkv',)))),
    'stitch-bias': dict(
        anchor=dict(lora=dict(rank=2), qkv_bias=False),
        plugins=dict(stitch_biases=dict(type='StitchBiases')),
    ),
    'stitch-lora': dict(
        plugins=dict(stitch_lora=dict(type='StitchLoRA', ranks=(2, 3)))
    ),
    'three-maps': dict(out_indices=(0, 2, 4)),
    'v1': dict(type='SNNetv1', out_indices=(1, 4)),
    'chain': dict(sizes=((8, 2), (10, 3), (12, 5)), out_indices=(0, 2, 4)),
    # A DPT head reads four maps, each with its cls token.
    'depth': None,
}
IDS = dict.fromkeys(OPTIONS, (7, 8)) | {
    'deit3': (0, 1, 2, 6, 7),
    'three-maps': (0, 3, 5, 8),
    'v1': (1, 3),
    'stitch-bias': (1, 8),
    'chain': (1, 7, 9, 12),
    'depth': (0, 12),
}


@pytest.mark.parametrize('name', OPTIONS)
def test_a_stitch_alone_is_the_same_network(toy_cfg, build, logits, name):
    cfg = small('depth') if name == 'depth' else toy_cfg(**OPTIONS[name])
    model, images = build(cfg), torch.randn(2, 3, 64, 64)
    costs = cost_table(model)
    for i in IDS[name]:
        _, single = single_stitch(cfg, model, i)
        wanted = logits(model, images)
        assert_close(logits(single, images), wanted, rtol=1e-5, atol=1e-5)
        held = sum(p.numel() for p in single.parameters())
        if name == 'stitch-bias':
            # qkv had no bias of its own and got one for that of the stitch.
            held -= {1: 5 * 3 * 12, 8: 2 * 3 * (8 + 12)}[i]
        assert held == costs[i].params, i


def test_weights_keep_their_names_and_low_rank_updates_are_merged(toy_cfg, build):
    cfg = toy_cfg()
    model = build(cfg)
    _, single = single_stitch(cfg, model, 8)
    source, state = model.state_dict(), single.state_dict()
    changed = {k for k, v in state.items() if not v.equal(source[k])}
    layers = ('0to1_0', '1to0_1', '0to1_2')
    assert changed == {f'backbone.stitching_layers.{name}.weight' for name in layers}
    blocks = {'.'.join(k.split('.')[2:5]) for k in state if '.blocks.' in k}
    assert blocks == {'0.blocks.0', '0.blocks.2', '1.blocks.2', '1.blocks.3'}
    assert 'backbone.anchors.0.pos_embed' in state
    assert 'backbone.anchors.1.pos_embed' not in state


def test_auxiliary_heads_and_their_maps_are_dropped(toy_cfg, build, logits):
    cfg = toy_cfg(out_indices=(0, 4), eval_maps=(1,))
    cfg.model.auxiliary_head = AUX
    model = build(cfg)
    exported, single = single_stitch(cfg, model, 3)
    assert exported.model.backbone.maps == [None, (1, 4, None)]
    assert not single.with_auxiliary_head
    assert list(single.backbone.stitching_layers) == ['0to1_1']
    images = torch.randn(1, 3, 64, 64)
    assert_close(logits(single, images), logits(model, images), rtol=1e-5, atol=1e-5)


def test_the_config_is_that_of_a_plain_model(toy_cfg, build):
    cfg = toy_cfg()
    cfg.work_dir, cfg.test_cfg = 'somewhere', dict(type=StitchTestLoop)
    pretrained, others = dict(type='Pretrained', checkpoint='a'), [dict(type='Normal')]
    cfg.model.backbone.anchors[0].init_cfg = pretrained
    cfg.model.decode_head.init_cfg = [pretrained, *others]
    # As in configs in which the hooks have no names.
    cfg.custom_hooks = [dict(type='EMAHook'), dict(type='StitchInitHook')]
    exported, _ = single_stitch(cfg, build(toy_cfg()), 8)
    assert exported.val_cfg == dict(type='ValLoop')
    assert exported.test_cfg == dict(type='TestLoop')
    of_stitches = {'stitch_init', 'stitch_sampling', 'stitch_report'}
    assert not of_stitches & set(exported.default_hooks)
    assert exported.custom_hooks == [dict(type='EMAHook')]
    assert not {'work_dir', 'fast_checkpoint', 'find_unused_parameters'} & set(exported)
    assert exported.model.decode_head.init_cfg == others
    assert 'Pretrained' not in exported.pretty_text
    for key in ('test_dataloader', 'test_evaluator', 'optim_wrapper', 'train_cfg'):
        assert exported[key] == cfg[key]
    # The source is as it was.
    assert cfg.model.backbone.type == 'SNNetv2'
    assert cfg.model.backbone.anchors[0].init_cfg.type == 'Pretrained'


class CurvedLayer(StitchingLayer):
    """No affine map, and with weights of its own."""

    def __init__(self, in_dim, out_dim):
        super().__init__(in_dim, out_dim)
        self.curve = nn.Sequential(
            nn.Linear(in_dim, 3), nn.GELU(), nn.Linear(3, out_dim)
        )

    def forward(self, x):
        return super().forward(x) + self.curve(x)


class ForgetfulLayer(StitchingLayer):
    """No weight shows its power."""

    def __init__(self, in_dim, out_dim, power=1):
        super().__init__(in_dim, out_dim)
        self.power = power

    def forward(self, x):
        x = super().forward(x)
        return x.sign() * x.abs() ** self.power


class LossyLayer(CurvedLayer):
    def config(self):
        return super().config() | dict(type='StitchingLayer')


@pytest.fixture
def with_layer(toy_cfg, monkeypatch):
    """Returns a toy config with stitching layers of a class, which is registered."""

    def with_layer(kind, **settings):
        monkeypatch.setitem(MODELS.module_dict, kind.__name__, kind)
        cfg = toy_cfg()
        cfg.model.backbone.stitching_layer = dict(type=kind.__name__, **settings)
        return cfg

    return with_layer


def test_layers_whose_settings_an_export_would_lose_are_refused(with_layer, build):
    with pytest.raises(ValueError, match=r"config\(\) returns \['power'\]"):
        build(with_layer(ForgetfulLayer, power=3))


def test_layers_whose_weights_an_export_would_lose_are_refused(with_layer, build):
    cfg = with_layer(LossyLayer)
    with pytest.raises(ValueError, match=r'curve\.0\.bias.*stitching_layer'):
        single_stitch(cfg, build(cfg), 8)
