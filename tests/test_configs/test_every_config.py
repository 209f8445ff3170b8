"""Every config says what to expect, builds, trains a step and tests an image."""

import pytest
from config_models import CONFIGS, load, paths, read
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from narrow_configs import narrow, write_data

# Nuclei has its own classes; its model is that of the toy detector.
ALL = [name for name in paths('**/*.py') if 'nuclei' not in name]
# One of each kind; the others differ in widths, ranks, weights or stitches, and take
# their step where slow tests are run.
QUICK = (
    'bridging/bridge-vit-s-resnet50',
    'bridging/tiny/bridge-vit-vit-vit-block',
    'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500',
    'dpt/dpt_snnetv2-deit3-s-l_',
    'dpt/dinov2/dpt_snnetv2-dinov2-s-b',
    'esta/fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub',
    'imagenet/snnetv2-deit3-s-l_',
    'imagenet/snnetv1-levit',
    'imagenet/snnetv1-resnet18-swin',
    'imagenet/tiny/vit-ti',
    'setr/setr-naive_deit3-s_8xb2-80k',
    'vitdet/mask-rcnn_deit3-s_8xb1',
)
WORST = dict(head=('accuracy/top1', 100), decode_head=('mIoU', 100), depth=('RMSE', 80))
WORST |= dict(roi_head=('coco/segm_mAP', 1))


def marks(name):
    slow = [] if name.startswith(QUICK) else [pytest.mark.slow]
    return slow + ([pytest.mark.ops] if 'mask-rcnn' in name else [])


@pytest.mark.parametrize('name', paths('**/*.py'))
def test_config_says_what_to_expect_and_builds(name):
    lines = (CONFIGS / name).read_text().splitlines()
    header = ' '.join(line for line in lines if line.startswith('#'))
    assert 'batch' in header
    assert 'paper' in header.lower()
    assert 'measured' in header or 'not yet run' in header
    assert not any('::' in line for line in lines if 'timm://' not in line)

    cfg, model = load(name)
    classes = cfg.get('metainfo', {}).get('classes')
    if classes:
        detects = hasattr(model, 'roi_head')
        head = model.roi_head.bbox_head if detects else model.decode_head
        assert head.num_classes == len(classes)

    hooks = cfg.default_hooks
    assert hooks.exact_resume.type == 'ExactResumeHook'
    assert hooks.checkpoint.type == 'StitchCheckpointHook'
    assert hooks.checkpoint.by_epoch is False
    # By default as often as validation.
    assert hooks.checkpoint.get('interval', cfg.train_cfg.val_interval) > 0
    assert cfg.randomness.seed == 0
    stitched = {'stitch_init', 'stitch_sampling', 'stitch_report'} & set(hooks)
    assert bool(stitched) == ('Stitch' in cfg.test_cfg.type)
    loader = cfg.train_dataloader
    assert loader.sampler.type == 'SeededSampler'
    assert loader.dataset.type == 'SeededDataset'
    # What is measured on is the same data set, without random augmentation.
    assert cfg.test_dataloader.dataset.type == loader.dataset.of


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp('data')
    write_data(root, DATASETS.get('mmdet.CocoDataset').METAINFO['classes'])
    return root


@pytest.mark.parametrize('name', [pytest.param(n, marks=marks(n)) for n in ALL])
def test_config_trains_and_tests(name, data_root, tmp_path):
    cfg = read(name)
    kind = narrow(cfg, data_root, tmp_path)
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    runner.train()
    after = runner.model.state_dict()
    assert all(v.isfinite().all() for v in after.values() if v.is_floating_point())
    moved = {k for k, v in after.items() if not v.equal(before[k])}
    if name.startswith('bridging'):
        assert moved
        assert all('stitching_layers.' in k for k in moved)
    else:
        assert any('head' in k for k in moved)
        assert any('.blocks.' in k or 'stitch' in k for k in moved)
    metrics = runner.test()
    metric, worst = WORST['depth' if 'dpt' in name else kind]
    found = [v for k, v in metrics.items() if k.endswith(metric)]
    assert all(0 <= value <= worst for value in found)
    stitches = {k.partition('/')[0] for k in metrics if k.startswith('stitch_')}
    stitched = hasattr(getattr(runner.model, 'backbone', None), 'space')
    assert len(found) == max(1, len(stitches))
    assert stitched == (len(stitches) > 1)
