"""Every config says what to expect, builds, trains a step and tests an image."""

import math
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from config_models import CONFIGS, DISTINCT, RUNS, load, paths, read, runs
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from narrowing import narrow_own

from snnet_mm.models.layers.stitch_batch_norm import ROWS

EVERY = [n for n in paths('**/*.py') if 'llama' not in n or find_spec('transformers')]
# The first of each folder builds where no slow test runs.
FIRST = [*{Path(name).parent: name for name in reversed(EVERY)}.values()]
# Nuclei has its own classes; its model is that of the toy detector. Language models
# take their steps in tests/test_tasks/test_transformers.
LEFT_OUT = 'nuclei', 'llama'
ALL = [n for n in paths('**/*.py') if not any(part in n for part in LEFT_OUT)]
# One of each kind; the others differ in widths, ranks, weights or stitches, and take
# their step where slow tests are run. Toy configs of SETR and DPT do it elsewhere.
QUICK = (
    'bridging/tiny/bridge-vit-vit-bottleneck',
    'dinov2/eomt_dinov2-s_1xb4',
    'vitdet/mask-rcnn_deit3-s_8xb1',
)
MAIN = 'accuracy/top1', 'mIoU', 'RMSE', 'coco/bbox_mAP'

# Training images, by which names of configs count epochs.
IMAGES = dict(in1k=1281167, nyu=24231, coco=118000, cub=5394, cars=7329, dogs=10800)
IMAGES |= dict(nabirds=21536, flowers=1020, cifar100=50000, caltech101=800)
IMAGES |= {f'cars-{k}shot': 196 * k for k in (1, 4, 8, 16)} | {'alpaca-512': 50002}
# Shared stitching layers and stitches, anchors among them, of SN-Netv1 with stages.
STAGED = {
    'swin-ti-s-b': (2 * 2 + 6 + 17, 41),
    'resnet18-50': (2 + 2, 10),
    'resnet18-swin-ti': (1 + 2, 8),
    'levit-192-256': (3 + 3, 8),
}


def marks(name):
    return [] if name.startswith(QUICK) else [pytest.mark.slow]


def test_config_headers_say_what_to_expect(subtests):
    for name in paths('**/*.py'):
        lines = (CONFIGS / name).read_text().splitlines()
        header = ' '.join(line for line in lines if line.startswith('#'))
        with subtests.test(name):
            assert 'batch' in header
            assert 'paper' in header.lower()
            assert 'measured' in header or 'not yet run' in header


@pytest.mark.parametrize(
    'names',
    [FIRST, pytest.param({*EVERY} - {*FIRST}, marks=pytest.mark.slow)],
    ids=['first', 'others'],
)
def test_configs_build(names, subtests):
    for name in sorted(names):
        with subtests.test(name):
            assert_consistent(*load(name))


def assert_consistent(cfg, model):
    classes = cfg.get('metainfo', {}).get('classes')
    if classes:
        parts = ('roi_head', 'decode_head', 'bbox_head', 'panoptic_head')
        head = next(getattr(model, part) for part in parts if hasattr(model, part))
        head = getattr(head, 'bbox_head', head)
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


def test_runs_train_as_long_as_their_names_say(subtests):
    for name in DISTINCT:
        with subtests.test(name):
            assert_length(name, read(name))


def assert_length(name, cfg):
    words = re.search(r'_(\d)xb(\d+)-(\d+)([kex]?)_(.*?)(-\d+x\d+)?$', name)
    gpus, batch, length = map(int, words.groups()[:3])
    unit, data = words.groups()[3:5]
    assert cfg.train_dataloader.batch_size == batch
    accumulated = batch * cfg.optim_wrapper.get('accumulative_counts', 1)
    assert cfg.auto_scale_lr == dict(base_batch_size=gpus * accumulated)
    iterations = cfg.train_cfg.max_iters
    if cfg.optim_wrapper.optimizer.lr == 0:  # published weights
        assert iterations == 1
        return
    if unit == 'x':  # of 12 epochs, without images that have no objects
        assert iterations == 12 * length * math.ceil(117266 / (gpus * batch))
    elif unit == 'e':
        images = 800 if data.startswith('vtab-') else IMAGES[data]
        steps = images / (gpus * batch)
        assert iterations == length * (steps if data == 'coco' else math.ceil(steps))
    else:
        assert iterations == length * (1000 if unit == 'k' else 1)
    assert cfg.param_scheduler[-1].get('end', iterations) == iterations


@pytest.mark.parametrize('name', ['deit3-l', 'snnetv2-deit3-s-l'])
def test_nyu_configs_train_as_the_authors(name):
    cfg, model = load(f'dpt/dpt_{name}_4xb4-24e_nyu-416x544')
    backbone = model.backbone
    for anchor in getattr(backbone, 'anchors', [backbone]):
        assert (anchor.grid, anchor.pos_embed_antialias) == ((14, 14), False)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    names = {id(p): k for k, p in model.named_parameters()}
    decays = {names[id(p)]: g['weight_decay'] for g in groups for p in g['params']}
    free = {k for k, decay in decays.items() if not decay}
    assert free == {k for k in decays if k.endswith(('pos_embed', 'cls_token'))}
    assert len(free) == (4 if 'snnet' in name else 2)


@pytest.mark.parametrize('family', STAGED)
def test_staged_configs_have_stitches_of_the_authors(family):
    (name,) = runs(f'imagenet/snnetv1-{family}_*')
    backbone = load(name)[1].backbone
    found = len(backbone.stitching_layers), len(backbone.space)
    assert found == STAGED[family]
    assert f', {found[1]} stitches' in RUNS[name].config.read_text()


@pytest.mark.parametrize('name', [pytest.param(n, marks=marks(n)) for n in ALL])
def test_config_trains_and_tests(name, data, tmp_path):
    cfg = read(name)
    narrow_own(cfg, data, tmp_path)
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    runner.train()
    after = runner.model.state_dict()
    assert all(v.isfinite().all() for v in after.values() if v.is_floating_point())
    assert all(k.endswith(ROWS) for k in {*after} - {*before})
    moved = {k for k, v in before.items() if not v.equal(after[k])}
    if 'bridge-' in name:
        assert moved
        trained = {k for k in moved if 'running_' not in k and 'num_b' not in k}
        assert all('stitching_layers.' in k for k in trained)
    else:
        assert any('head' in k for k in moved)
        assert any('.blocks.' in k or 'stitch' in k for k in moved)
    metrics = runner.test()
    found = [v for k, v in metrics.items() if k.endswith(MAIN)]
    assert all(0 <= value <= 100 for value in found)
    stitches = {k.partition('/')[0] for k in metrics if k.startswith('stitch_')}
    stitched = hasattr(getattr(runner.model, 'backbone', None), 'space')
    assert len(found) == max(1, len(stitches))
    assert stitched == (len(stitches) > 1)
