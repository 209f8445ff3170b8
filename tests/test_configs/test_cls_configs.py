import inspect
import math

import numpy as np
import pytest
import timm
from config_models import GROUPS_OF_134, load, num_parameters, optimizer_after, paths
from mmcv.transforms import Compose
from mmengine.registry import DATASETS

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models.wrappers.distillation import TimmTeacher
from snnet_mm.utils import isolated_rng

pytest.importorskip('mmpretrain')

DEIT3 = paths('imagenet/*deit3-*_8xb32-50e_*.py')
DEIT = paths('imagenet/*deit-*_8xb128-50e_*.py')
DROP_PATH = {384: 0.05, 768: 0.15, 1024: 0.4}
NUM_IMAGES = 1281167


def load_in1k(variant, recipe='8xb32-50e'):
    return load(f'imagenet/{variant}_{recipe}_in1k-224x224.py')


@pytest.mark.parametrize('name', [*DEIT3, *DEIT])
def test_recipes_of_deit3_and_deit(name):
    cfg, model = load(name)
    deit3 = name in DEIT3
    kind, batch, peak, decay, patches = (
        ('Lamb', 256, 3e-5, 0.02, 196) if deit3 else ('AdamW', 1024, 1e-4, 0.05, 197)
    )
    optimizer = optimizer_after(cfg, model, 100)
    assert type(optimizer).__name__ == kind
    warm_up = 5 * math.ceil(NUM_IMAGES / batch)
    lr = 1e-7 + (peak - 1e-7) * 100 / (warm_up - 1)
    names = {p: name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        assert group['lr'] == pytest.approx(lr, rel=1e-6)
        for p in group['params']:
            kept = p.ndim < 2 or names[p].endswith(('pos_embed', 'cls_token'))
            assert group['weight_decay'] == (0 if kept else decay), names[p]
    assert cfg.train_dataloader.batch_size * 8 == batch
    assert cfg.train_cfg.max_iters == 10 * warm_up == cfg.param_scheduler[-1].end
    for anchor in (m for m in model.modules() if type(m).__name__ == 'PlainViT'):
        rates = [block.drop_path.rate for block in anchor.blocks]
        last = DROP_PATH[anchor.block_dims[0]] if deit3 else 0.1
        np.testing.assert_allclose(rates, np.linspace(0, last, anchor.depth), atol=1e-7)
        assert anchor.pos_embed.shape[1] == patches
    mixes = {
        type(a).__name__: a.alpha
        for a in model.data_preprocessor.batch_augments.augments
    }
    assert mixes == dict(CutMix=1) if deit3 else dict(Mixup=0.8, CutMix=1)
    # Built lazily, so that every transform is looked up but no file is.
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        dataset = DATASETS.build(dict(loader.dataset, lazy_init=True))
        assert len(dataset.metainfo['classes']) == 1000


@pytest.mark.parametrize(
    'variant, rank, grouped',
    [
        ('snnetv1-deit3-s-l', None, False),
        ('snnetv1-deit3-s-b', None, False),
        ('snnetv1-deit3-b-l', None, False),
        ('snnetv2-deit3-s-l-tws', None, False),
        ('snnetv2-deit3-s-l-tws-ros', None, True),
        ('snnetv2-deit3-s-l', 16, True),
        ('snnetv2-deit3-s-b', 16, True),
        ('snnetv2-deit3-b-l', 16, True),
        ('snnetv2-deit3-b-l-r64', 64, True),
    ],
)
def test_rows_of_figures_6_and_11(variant, rank, grouped):
    cfg, model = load_in1k(variant)
    assert len(model.backbone.space.ids) == (13 if 'v1' in variant else 134)
    ranks = {getattr(x, 'rank', None) for x in model.backbone.stitching_layers.values()}
    assert ranks == {rank}
    sampler = cfg.default_hooks.stitch_sampling.sampler
    assert sampler.per_rank
    assert (sampler.type == 'ResourceConstrainedSampler') == grouped
    if grouped:
        groups = ResourceConstrainedSampler(cost_table(model), step=sampler.step).groups
        assert [len(g) for g in groups] == GROUPS_OF_134


def test_published_costs_of_deit3(published_cls):
    table = cost_table(load_in1k('snnetv2-deit3-s-l')[1])
    assert table.input_size == (224, 224)
    assert set(table) == set(published_cls)
    for stitch_id, figures in published_cls.items():
        ratio = table[stitch_id].flops / figures['flops']
        assert ratio == pytest.approx(1, abs=0.01), stitch_id
    for stitch_id, size in enumerate('sl'):
        params = num_parameters(load_in1k(f'deit3-{size}')[1])
        assert params == table[stitch_id].params


def test_published_costs_of_deit(published_v1):
    _, model = load_in1k('snnetv1-deit-ti-s-b', '8xb128-50e')
    table = cost_table(model)
    assert set(table) == set(published_v1)
    for stitch_id, figures in published_v1.items():
        flops, params = table[stitch_id][:2]
        assert flops == pytest.approx(figures['flops'], rel=0.01), stitch_id
        assert params == pytest.approx(figures['params'], rel=0.01), stitch_id
    # 'A single SN-Net with 118.4M parameters can include all possible stitches.'
    assert num_parameters(model) / 1e6 == pytest.approx(118.4, abs=0.05)


def test_simple_random_crops_of_deit3():
    cfg, _ = load_in1k('deit3-s')
    pipeline = Compose(cfg.train_dataloader.dataset.pipeline[1:5])
    columns = np.arange(300, dtype=np.uint8) // 2 + 50
    image = np.broadcast_to(columns[None, :, None], (240, 300, 3))
    with isolated_rng(0):
        crops = [pipeline(dict(img=image.copy()))['img'] for _ in range(100)]
    assert {c.shape for c in crops} == {(224, 224, 3)}
    assert min(c.min() for c in crops) > 40  # nothing black
    # 280 columns and 4 mirrored ones on each side leave 65 places for 224.
    first = [int(c[100, 0, 0]) for c in crops]
    assert min(first) < 54
    assert 78 < max(first) < 83


def test_teacher_of_snnetv1_leaves_the_rest_as_it_is():
    cfg, model = load_in1k('snnetv1-deit-ti-s-b', '8xb128-50e')
    assert type(model).__name__ == 'DistillationWrapper'
    plain_cfg, plain = load_in1k('snnetv1-deit-ti-s-b-no-teacher', '8xb128-50e')
    assert cfg.model.model == plain_cfg.model
    assert cost_table(model).fingerprint == cost_table(plain).fingerprint
    assert model.state_dict().keys() == plain.state_dict().keys()
    # DeiT's own weights; those that timm has by default are of ImageNet-12K.
    name = inspect.signature(TimmTeacher).parameters['name'].default
    assert timm.get_pretrained_cfg(name).tag == 'deit_in1k'
