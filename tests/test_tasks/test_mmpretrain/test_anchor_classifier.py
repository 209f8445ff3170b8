"""Classifiers of anchors against timm's networks."""

import pytest
import timm
import torch
from mmengine.registry import MODELS
from staged_anchors import ENDS, convnext, disturb, levit, mobilenet, resnet, swin
from torch.testing import assert_close

from snnet_mm.tasks.mmpretrain import AnchorClassifier

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


@pytest.fixture
def saved(tmp_path):
    """Saves weights; the config that loads them."""

    def save(weights, **kwargs):
        path = str(tmp_path / 'theirs.pth')
        torch.save(weights, path)
        return dict(type='Pretrained', checkpoint=path, **kwargs)

    return save


@torch.no_grad()
@pytest.mark.parametrize('family', [*PLAIN, *STAGES])
def test_anchor_classifier_equals_timm_with_its_weights(saved, family):
    if family in PLAIN:
        theirs, ours, settings = PLAIN[family]
        sizes = dict(img_size=64, patch_size=16, embed_dim=8, depth=3, num_heads=2)
        network = timm.models.vision_transformer.VisionTransformer(
            **sizes, num_classes=CLASSES, **theirs
        )
        arch = dict(embed_dims=8, depth=3, num_heads=2)
        config = dict(type='PlainViT', arch=arch, img_size=64, **ours)
    else:
        config, settings = STAGES[family](), ENDS[family]
        sized = dict(img_size=64) if family in ('swin', 'levit') else {}
        args = dict(num_classes=CLASSES, **config['model_args'], **sized)
        network = timm.create_model(config['model'], **args)
    init = dict(init_cfg=saved(disturb(network).state_dict()))
    backbone = MODELS.build(config | dict(out='end') | init).eval()
    width = backbone.block_dims[-1]
    classifier = AnchorClassifier(width, CLASSES, **settings, **init).eval()
    backbone.init_weights()
    classifier.init_weights()
    images = torch.randn(2, 3, 64, 64)
    wanted = network.eval()(images)
    assert wanted.std() > 0.01
    assert_close(classifier(backbone(images)), wanted, rtol=1e-5, atol=1e-5)


def test_anchor_classifier_weights_that_do_not_fit(saved):
    other = AnchorClassifier(8, CLASSES).state_dict()
    words = r'head\.weight has shape \(5, 8\).*\(6, 8\).*num_classes'
    blocks = {'blocks.0.norm1.weight': torch.zeros(2)}
    for weights, message in ((other, words), (blocks, r'norm\.weight')):
        init = saved(weights)
        with pytest.raises(ValueError, match=f'theirs.pth.*{message}'):
            AnchorClassifier(8, CLASSES + 1, init_cfg=init).init_weights()
