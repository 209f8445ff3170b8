"""Every config trains a step and tests an image, narrowed to a size for a CPU."""

import pytest
from config_models import paths, read
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from narrow_configs import narrow, write_data

# Nuclei has its own classes; its model is that of the toy detector.
ALL = [name for name in paths('**/*.py') if '/nuclei/' not in f'/{name}']
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
