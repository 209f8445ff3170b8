"""Depth Anything V2 of the authors' files equals transformers' implementation."""

import re

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from staged_anchors import disturb

from snnet_mm.costs import cost_table
from snnet_mm.elastic import elastic_model
from snnet_mm.models import fit_in_turn, set_stitch
from snnet_mm.utils import load_config, load_weights_only

transformers = pytest.importorskip('transformers')
pytest.importorskip('mmseg')

TOOL = 'model_converters/depth_anything.py'
CONFIG = 'configs/dpt/depth_anything/dpt_depth-anything-v2-s_4xb4-24e_nyu-420x546.py'
WIDTH, SIDE, NECK, CHANNELS = 24, 70, [8, 12, 16, 20], 16  # 5x5 patches: no even number
QKV = 'query', 'key', 'value'
# Names of transformers, and of the authors' files.
NAMES = (
    (r'backbone\.embeddings\.cls_token', 'pretrained.cls_token'),
    (r'backbone\.embeddings\.mask_token', 'pretrained.mask_token'),
    (r'backbone\.embeddings\.position_embeddings', 'pretrained.pos_embed'),
    (
        r'backbone\.embeddings\.patch_embeddings\.projection',
        'pretrained.patch_embed.proj',
    ),
    (r'backbone\.encoder\.layer\.(\d+)', r'pretrained.blocks.\1'),
    (r'backbone\.layernorm', 'pretrained.norm'),
    (r'attention\.output\.dense', 'attn.proj'),
    (r'layer_scale(\d)\.lambda1', r'ls\1.gamma'),
    (r'neck\.reassemble_stage\.layers\.(\d)\.projection', r'depth_head.projects.\1'),
    (r'neck\.reassemble_stage\.layers\.(\d)\.resize', r'depth_head.resize_layers.\1'),
    (r'neck\.convs\.(\d)', lambda m: f'depth_head.scratch.layer{int(m[1]) + 1}_rn'),
    (
        r'neck\.fusion_stage\.layers\.(\d)',
        lambda m: f'depth_head.scratch.refinenet{4 - int(m[1])}',
    ),
    (r'residual_layer(\d)\.convolution(\d)', r'resConfUnit\1.conv\2'),
    (r'(refinenet\d)\.projection', r'\1.out_conv'),
    (r'head\.conv1\b', 'depth_head.scratch.output_conv1'),
    (r'head\.conv2\b', 'depth_head.scratch.output_conv2.0'),
    (r'head\.conv3\b', 'depth_head.scratch.output_conv2.2'),
)


def published(model):
    """Return the weights of a model of transformers in the layout of the authors."""
    found = {}
    for key, value in model.state_dict().items():
        for theirs, name in NAMES:
            key = re.sub(theirs, name, key)
        found[key] = value
    for block in range(4):
        at = f'pretrained.blocks.{block}.'
        for part in ('weight', 'bias'):
            names = (
                f'{at}attention.attention.{n}.{part}' for n in ('query', 'key', 'value')
            )
            found[f'{at}attn.qkv.{part}'] = torch.cat([found.pop(n) for n in names])
    return found


def theirs(kind):
    encoder = transformers.Dinov2Config(
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=14,
        out_features=['stage1', 'stage2', 'stage3', 'stage4'],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=encoder,
        reassemble_hidden_size=WIDTH,
        neck_hidden_sizes=NECK,
        fusion_hidden_size=CHANNELS,
        depth_estimation_type=kind,
        max_depth=20 if kind == 'metric' else 1,
    )
    torch.manual_seed(0)
    return disturb(transformers.DepthAnythingForDepthEstimation(config)).eval()


def narrow():
    """Return the config with a narrow network."""
    init_default_scope('mmseg')
    cfg = load_config(CONFIG)
    size = dict(embed_dim=WIDTH, depth=4, num_heads=2)
    cfg.model.pop('init_cfg')
    backbone, head = cfg.model.backbone, cfg.model.decode_head
    backbone.update(img_size=SIDE, model_args=size, out_indices=(0, 1, 2, 3))
    cfg.model.neck.in_channels = [WIDTH] * 4
    head.update(in_channels=WIDTH, channels=CHANNELS, post_process_channels=NECK)
    return cfg


@torch.no_grad()
@pytest.mark.parametrize('kind', ['metric', 'relative'])
def test_depth_anything_equals_transformers(kind, tmp_path, run_here):
    reference = theirs(kind)
    torch.save(published(reference), tmp_path / 'theirs.pth')
    printed = run_here(TOOL, tmp_path / 'theirs.pth', tmp_path / 'ours.pth')
    assert 'ours.pth' in printed
    config = narrow().model
    config.decode_head.activation = 'sigmoid' if kind == 'metric' else 'relu'
    model = MODELS.build(config).eval()
    model.load_state_dict(load_weights_only(tmp_path / 'ours.pth')['state_dict'])
    images = torch.randn(2, 3, SIDE, SIDE)
    wanted, found = reference(images).predicted_depth, model(images)[:, 0]
    assert wanted.std() > 0.01
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_depth_anything_is_made_elastic():
    images = torch.randn(2, 3, SIDE, 2 * SIDE)
    network = disturb(MODELS.build(narrow().model)).eval()
    elastic = elastic_model(network, ['0:1/48 1:0/96 2:2/12'])
    fit_in_turn(elastic.backbone, [images])
    costs, found = cost_table(elastic, (SIDE, 2 * SIDE)), []
    for i in (0, 1):
        set_stitch(elastic, i)
        found.append(elastic(images))
    assert found[0].equal(network(images))
    assert 0 < (found[1] - found[0]).abs().max() < 20
    assert costs[1].flops < costs[0].flops


def test_depth_anything_of_another_file_is_refused(tmp_path, run_here):
    torch.save({'backbone.norm.weight': torch.ones(2)}, tmp_path / 'theirs.pth')
    with pytest.raises(ValueError, match="SRC=.*'depth_head'.*unlike.*'backbone'"):
        run_here(TOOL, tmp_path / 'theirs.pth', tmp_path / 'ours.pth')
