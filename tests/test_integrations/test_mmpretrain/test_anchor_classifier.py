"""Classifiers of anchors against timm's networks."""

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import ENDS, convnext, disturb, levit, mobilenet, resnet, swin
from torch.testing import assert_close

pytest.importorskip('mmpretrain')
timm = pytest.importorskip('timm')

from snnet_mm.integrations.mmpretrain import AnchorClassifier  # noqa: E402

CLASSES = 5
STAGES = {f.__name__: f for f in (swin, resnet, convnext, levit, mobilenet)}
# Plain networks: arguments of timm's, of the anchor and of its classifier.
PLAIN = dict(
    deit3=(dict(no_embed_class=True, init_values=1e-6), {}, {}),
    deit=({}, dict(pos_embed_prefix=True, layer_scale_init=None), {}),
    mean=(
        dict(global_pool='avg', class_token=False),
        dict(cls_token=False, layer_scale_init=None),
        dict(pooling='mean'),
    ),
)


def plain_network(**kwargs):
    sizes = dict(img_size=64, patch_size=16, embed_dim=8, depth=3, num_heads=2)
    network = timm.models.vision_transformer.VisionTransformer(
        **sizes, num_classes=CLASSES, **kwargs
    )
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


@torch.no_grad()
@pytest.mark.parametrize('family', [*PLAIN, *STAGES])
def test_anchors_with_weights_of_timm_give_the_logits_of_timm(tmp_path, family):
    if family in PLAIN:
        theirs, ours, settings = PLAIN[family]
        network = plain_network(**theirs)
        arch = dict(embed_dims=8, depth=3, num_heads=2)
        config = dict(type='PlainViT', arch=arch, img_size=64, **ours)
    else:
        config, settings = STAGES[family](), ENDS[family]
        sized = dict(img_size=64) if family in ('swin', 'levit') else {}
        args = dict(num_classes=CLASSES, **config['model_args'], **sized)
        network = disturb(timm.create_model(config['model'], **args))
    path = tmp_path / 'theirs.pth'
    torch.save(network.state_dict(), path)
    init = dict(init_cfg=dict(type='Pretrained', checkpoint=str(path)))
    backbone = MODELS.build(config | dict(out='end') | init).eval()
    width = backbone.block_dims[-1]
    classifier = AnchorClassifier(width, CLASSES, **settings, **init).eval()
    backbone.init_weights()
    classifier.init_weights()
    images = torch.randn(2, 3, 64, 64)
    wanted = network.eval()(images)
    assert_close(classifier(backbone(images)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('name', ['ends', 'anchor_heads'])
@pytest.mark.parametrize('asked', ['ends', 'anchor_heads'])
def test_older_checkpoints_and_configs_name_the_heads_ends(tmp_path, name, asked):
    one = AnchorClassifier(12, CLASSES)
    weights = {f'head.{name}.1.{k}': v for k, v in one.state_dict().items()}
    torch.save(weights, tmp_path / 'a.pth')
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'a.pth'))
    init['prefix'] = f'head.{asked}.1.'
    other = AnchorClassifier(12, CLASSES, init_cfg=init)
    other.init_weights()
    assert other.head.weight.equal(one.head.weight)


def load(path, weights, *sizes):
    torch.save(weights, path)
    init_cfg = dict(type='Pretrained', checkpoint=str(path))
    AnchorClassifier(*sizes, init_cfg=init_cfg).init_weights()


def test_weights_that_do_not_fit(tmp_path):
    words = r'theirs.pth.*head\.weight has shape \(5, 8\).*\(6, 8\).*num_classes'
    with pytest.raises(ValueError, match=words):
        load(tmp_path / 'theirs.pth', plain_network().state_dict(), 8, CLASSES + 1)
    with pytest.raises(ValueError, match=r'theirs.pth.*norm\.weight'):
        load(tmp_path / 'theirs.pth', {'blocks.0.norm1.weight': torch.zeros(2)}, 2, 3)


@pytest.mark.parametrize(
    'settings, words',
    [
        (dict(pooling='max'), "pooling='max'; allowed: 'cls', 'mean', 'norm-mean'"),
        (dict(norm='GN'), "norm='GN'; allowed: 'LN', 'BN', None"),
        (dict(norm='BN', pooling='norm-mean'), "norm='BN'; allowed: 'LN'"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(ValueError, match=words):
        AnchorClassifier(8, CLASSES, **settings)
