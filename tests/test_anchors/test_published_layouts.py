"""Encoders of other systems in configs load files in the layout of their authors."""

from copy import deepcopy

import pytest
import timm
import torch
from config_models import paths, read
from mmengine.registry import MODELS
from staged_anchors import disturb
from states import states_of
from torch.testing import assert_close

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
pytest.importorskip('mmseg')

NARROW = dict(embed_dim=32, depth=3, num_heads=2)
ARCH = dict(embed_dims=32, depth=3, num_heads=2)


def of_dinov3(weights):
    """Return the layout of dinov3's repository, which also has what is not used."""
    found = {}
    for key, value in weights.items():
        key = key.replace('reg_token', 'storage_tokens')
        found[key.replace('gamma_1', 'ls1.gamma').replace('gamma_2', 'ls2.gamma')] = (
            value
        )
    for i in range(NARROW['depth']):
        found[f'blocks.{i}.attn.qkv.bias'] = torch.zeros(96)
        found[f'blocks.{i}.attn.qkv.bias_mask'] = torch.ones(96)
    return found | {
        'mask_token': torch.ones(1, 32),
        'rope_embed.periods': torch.ones(4),
    }


def of_clip(weights):
    """Return the layout of OpenAI's CLIP, of which the image tower is a part."""
    names = (
        ('blocks.', 'transformer.resblocks.'), ('norm_pre.', 'ln_pre.'),
        ('.norm1.', '.ln_1.'), ('.norm2.', '.ln_2.'), ('.qkv.', '.in_proj_'),
        ('attn.proj.', 'attn.out_proj.'), ('.fc1.', '.c_fc.'), ('.fc2.', '.c_proj.'),
        ('patch_embed.proj.', 'conv1.'), ('cls_token', 'class_embedding'),
        ('pos_embed', 'positional_embedding'),
    )  # fmt: skip
    found = {'token_embedding.weight': torch.ones(2, 2), 'logit_scale': torch.ones(())}
    for key, value in weights.items():
        key = 'ln_post.' + key[5:] if key.startswith('norm.') else key
        for ours, theirs in names:
            key = key.replace(ours, theirs)
        single = key in ('class_embedding', 'positional_embedding')
        found[f'visual.{key}'] = value.squeeze() if single else value
    return found | {'visual.proj': torch.ones(32, 4)}


def of_siglip(weights):
    """Return the layout of OpenCLIP's SigLIP."""
    found = {f'visual.trunk.{k}': v for k, v in weights.items()}
    return found | {'text.token_embedding.weight': torch.ones(2, 2)}


def of_sam(weights):
    """Return the layout of SAM, the neck included."""
    found = {
        f'image_encoder.{k}'.replace('mlp.fc', 'mlp.lin'): v for k, v in weights.items()
    }
    return found | {'mask_decoder.iou_token.weight': torch.ones(1, 2)}


# Config, number of the anchor or None, model of timm and its own arguments, layout.
CASES = {
    'dinov3-setr': (
        'setr-naive_snnetv2-dinov3',
        0,
        'vit_small_patch16_dinov3',
        of_dinov3,
    ),
    'dinov3-upernet': (
        'upernet_snnetv2-dinov3',
        1,
        'vit_base_patch16_dinov3',
        of_dinov3,
    ),
    'clip': ('clip-b', None, 'vit_base_patch16_clip_224', of_clip),
    'siglip': ('siglip2-b', None, 'vit_base_patch16_siglip_224', of_siglip),
    'sam': ('mask-rcnn_sam-b', None, 'samvit_base_patch16', of_sam),
}


@torch.no_grad()
@pytest.mark.parametrize('name', CASES)
def test_encoders_of_configs_load_published_layouts(name, tmp_path):
    config, number, model, layout = CASES[name]
    (path,) = paths(f'encoders/{config}*.py')
    backbone = deepcopy(read(path).model.backbone)
    config = backbone if number is None else backbone.anchors[number]
    sam = name == 'sam'
    size = dict(img_size=64) | NARROW
    size |= dict(global_attn_indexes=(1,), window_size=3) if sam else {}
    network = disturb(timm.create_model(model, num_classes=0, **size)).eval()
    config.update(out='end', img_size=64, drop_path_rate=0)
    if sam:
        config.update(arch=ARCH, global_blocks=(1,), window_size=3)
    else:
        config.pop('pretrained')
        config.update(model_args=NARROW)
    init = dict(config.pop('init_cfg', {}), type='Pretrained')
    init['checkpoint'] = str(tmp_path / 'theirs.pth')
    torch.save(layout(network.state_dict()), init['checkpoint'])
    anchor = MODELS.build(dict(config, init_cfg=init)).eval()
    anchor.init_weights()
    images = torch.randn(2, 3, 64, 64)
    found = states_of(anchor, images)
    wanted = network.forward_intermediates(images, intermediates_only=True)
    for state, x in zip(found[:-1], wanted[:-1], strict=True):
        assert x.std() > 0.1
        assert_close(state.as_map(), x, rtol=1e-5, atol=1e-5)
