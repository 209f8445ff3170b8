"""Configs of plain ViTs: the authors' stitches, groups, costs and parameters."""

from functools import cache

import pytest
from config_models import GROUPS_OF_134, load, num_parameters

from snnet_mm.costs import cost_table, preprocessed_size
from snnet_mm.training import ResourceConstrainedSampler

pytest.importorskip('mmseg')
pytest.importorskip('mmpretrain')

CAMVID = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
NYU = 'dpt/dpt_{}_4xb4-24e_nyu-416x544.py'
DINOV2 = 'setr/dinov2/linear_snnetv2-dinov2-{}_8xb2-80k_ade20k-518x518.py'
DINOV3 = 'encoders/{}_snnetv2-dinov3-s-b_8xb2-80k_ade20k-512x512.py'
IN1K = 'imagenet/{}_8xb32-50e_in1k-224x224.py'
DEIT = 'imagenet/{}_8xb128-50e_in1k-224x224.py'
COCO = 'vitdet/mask-rcnn_{}_8xb1-100e_coco-1024x1024.py'
GROUPS_OF_38 = [1, *[6] * 5, 1]
GROUPS_OF_10_G = [1, 8, *[4, 4, 8, 12, 8] * 3, 4, 4, 8, 1]


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@cache
def costs_of(name):
    cfg, model = load(name)
    # Heads of detectors need real weights, and are the same for all stitches.
    counted = model.backbone if name.startswith('vitdet') else model
    return cost_table(
        counted, cfg.test_cfg.get('input_size') or preprocessed_size(model)
    )


@pytest.mark.parametrize(
    'name, groups',
    [
        (SETR.format('snnetv2-deit3-s-l'), GROUPS_OF_134),
        slow(NYU.format('snnetv2-deit3-s-l'), GROUPS_OF_134),
        slow(DINOV2.format('b-l'), GROUPS_OF_134),
        slow(DINOV2.format('s-b'), GROUPS_OF_134),
        slow(DINOV2.format('s-b-l'), GROUPS_OF_134 + GROUPS_OF_134[1:]),
        (DINOV3.format('setr-naive'), GROUPS_OF_134),
        slow(DINOV3.format('upernet'), GROUPS_OF_134),
        (CAMVID, GROUPS_OF_38),
        slow(IN1K.format('snnetv2-deit3-s-b'), GROUPS_OF_134),
        (COCO.format('snnetv2-deit3-s-l'), GROUPS_OF_10_G),
    ],
)
def test_configs_groups_are_those_of_the_authors(name, groups):
    step = load(name)[0].default_hooks.stitch_sampling.sampler.step
    found = ResourceConstrainedSampler(costs_of(name), step=step).groups
    assert [len(group) for group in found] == groups


@pytest.mark.parametrize(
    'name, millions',
    [
        ('deit3-s', 23.0),
        ('deit3-b', 88.2),
        ('deit3-l', 307.1),
        ('snnetv2-deit3-s-l', 338.5),
        ('snnetv2-deit3-b-l', 412.3),
    ],
)
def test_setr_configs_have_published_parameters(name, millions):
    """Table 1 gives 23, 88, 307, 338 and 412 M, which needs position bias tables."""
    _, model = load(SETR.format(name))
    updates = sum(p.numel() for k, p in model.named_parameters() if '.lora_' in k)
    # Low-rank updates are merged for tests.
    found = (num_parameters(model) - updates) / 1e6
    assert found == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    'name, figures, error, error_of_fast',
    [
        (SETR.format('snnetv2-deit3-s-l'), 'published', 0.01, 0.03),
        # fvcore counts norms and upsampling too: 0.3 to 0.6 GFLOPs.
        (NYU.format('snnetv2-deit3-s-l'), 'published_depth', 0.004, 0.004),
        (IN1K.format('snnetv2-deit3-s-l'), 'published_cls', 0.01, 0.01),
        (DEIT.format('snnetv1-deit-ti-s-b'), 'published_v1', 0.01, 0.01),
    ],
)
def test_configs_have_published_costs(name, figures, error, error_of_fast, request):
    table, figures = costs_of(name), request.getfixturevalue(figures)
    assert set(table) == set(figures)
    for stitch in load(name)[1].backbone.space:
        found, row = figures[stitch.id], table[stitch.id]
        found = found if isinstance(found, dict) else dict(flops=found)
        most = error if stitch.end_anchor else error_of_fast
        assert row.flops == pytest.approx(found['flops'], rel=most), stitch
        if 'params' in found:
            assert row.params == pytest.approx(found['params'], rel=0.01), stitch


def test_imagenet_configs_have_parameters_of_single_models():
    model = load(DEIT.format('snnetv1-deit-ti-s-b'))[1]
    # 'A single SN-Net with 118.4M parameters can include all possible stitches.'
    assert num_parameters(model) / 1e6 == pytest.approx(118.4, abs=0.05)
    for stitch_id, size in enumerate('sl'):
        params = num_parameters(load(IN1K.format(f'deit3-{size}'))[1])
        table = costs_of(IN1K.format('snnetv2-deit3-s-l'))
        assert params == table[stitch_id].params


def test_vitdet_configs_have_published_parameters():
    """As in its table of results, with positions of 14x14 patches and a cls token."""
    for arch, millions in dict(b=111, l=331).items():
        _, model = load(COCO.format(f'deit3-{arch}'))
        width = model.backbone.block_dims[0]
        more = (64 * 64 - 14 * 14 - 1) * width + 2 * len(model.backbone.blocks) * width
        assert round((num_parameters(model) - more) / 1e6) == millions


def test_vitdet_every_stitch_attends_globally_four_times():
    """Slow global blocks are the last ones of the fast global blocks' groups."""
    backbone = load(COCO.format('snnetv2-deit3-s-l'))[1].backbone
    fast_depth = backbone.anchors[0].depth
    for stitch in backbone.space:
        at = []
        for a, begin, end in stitch.segments:
            anchor = backbone.anchors[a]
            run = (i for i in range(begin, end) if anchor.blocks[i].windows is None)
            at += [i * fast_depth // anchor.depth for i in run]
        assert at == [2, 5, 8, 11], stitch
