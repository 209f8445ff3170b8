"""mmpretrain's own layer-wise decay, as its fine-tuning configs have it."""

import pytest
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from stock_configs import classifier, plain_vits

pytest.importorskip('snnet_mm.integrations.mmpretrain')


def test_rates_fall_towards_the_embedding_of_every_anchor():
    init_default_scope('mmpretrain')
    config = classifier(plain_vits)
    config['backbone'].pop('_delete_', None)
    config['head'].pop('_delete_')
    model = MODELS.build(dict(type='ImageClassifier', **config))
    decay = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.0),
        constructor='LearningRateDecayOptimWrapperConstructor',
        paramwise_cfg=dict(layer_decay_rate=0.5),
    )
    groups = build_optim_wrapper(model, decay).optimizer.param_groups
    rates = {g['param_name']: g['lr'] for g in groups if 'param_name' in g}
    # Depths 2 and 4: an embedding, the blocks, and what comes after them.
    for anchor, depth in enumerate((2, 4)):
        prefix = f'backbone.anchors.{anchor}'
        assert rates[f'{prefix}.patch_embed.proj.weight'] == 0.5 ** (depth + 1)
        for i in range(depth):
            name = f'{prefix}.blocks.{i}.mlp.fc1.weight'
            assert rates[name] == 0.5 ** (depth - i)
    others = {n for n in rates if not n.startswith('backbone.anchors')}
    assert {rates[name] for name in others} == {1.0}
    assert any('stitching_layers' in name for name in others)
