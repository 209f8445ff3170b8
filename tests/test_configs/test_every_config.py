"""Every config says what to expect, builds, trains a step and tests an image."""

import math
import re
from fnmatch import fnmatch
from importlib.util import find_spec

import pytest
from config_models import CONFIGS, RUNS, load, paths, read, runs
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from narrow_configs import narrow, write_data

from snnet_mm.models.layers.stitch_batch_norm import ROWS

LANGUAGE = pytest.mark.skipif(not find_spec('transformers'), reason='transformers')
EVERY = [
    pytest.param(name, marks=LANGUAGE if 'llama' in name else [])
    for name in paths('**/*.py')
]
# Nuclei has its own classes; its model is that of the toy detector. Language models
# take their steps in tests/test_tasks/test_transformers.
LEFT_OUT = 'nuclei', 'llama'
ALL = [n for n in paths('**/*.py') if not any(part in n for part in LEFT_OUT)]
# One of each kind; the others differ in widths, ranks, weights or stitches, and take
# their step where slow tests are run. Toy configs of SETR and DPT do it elsewhere.
QUICK = (
    'bridging/tiny/bridge-vit-vit-bottleneck',
    'dinov2/eomt_dinov2-s_1xb4',
    'imagenet/snnetv1-resnet18-swin',
    'imagenet/tiny/vit-ti',
    'setr/setr-naive_deit3-s_8xb2-80k',
    'vitdet/mask-rcnn_deit3-s_8xb1',
)
WORST = dict(head=('accuracy/top1', 100), decode_head=('mIoU', 100), depth=('RMSE', 80))
WORST |= dict(roi_head=('coco/segm_mAP', 1), bbox_head=('coco/bbox_mAP', 1))

# Training images, by which names of configs count epochs.
IMAGES = dict(in1k=1281167, nyu=24231, coco=118000, cub=5394, cars=7329, dogs=10800)
IMAGES |= dict(nabirds=21536, flowers=1020, cifar100=50000, caltech101=800)
IMAGES |= {f'cars-{k}shot': 196 * k for k in (1, 4, 8, 16)} | {'alpaca-512': 50002}
# Optimizer, rate and decay that the authors give.
RECIPES = {
    'bridging/bridge*': ('AdamW', 2e-3, 0.05),
    'bridging/finetune*': ('AdamW', 2e-4, 0.05),
    'dpt/dpt_*': ('AdamW', 2e-5, 0.01),
    'esta/fgvc/*': ('AdamW', 1e-3 * 64 / 256, 1e-4),
    'esta/vtab/*': ('AdamW', 1e-3 * 64 / 256, 1e-4),
    'imagenet/*deit-*': ('AdamW', 1e-4, 0.05),
    'imagenet/*deit3-*': ('Lamb', 3e-5, 0.02),
    'imagenet/*levit-*': ('AdamW', 1e-4, 0.025),
    'imagenet/*resnet18-*': ('SGD', 0.05, 2e-5),
    'setr/setr*-mmseg-lr_*': ('SGD', 0.01, 0),
    'setr/setr*': ('SGD', 0.01, 5e-4),
    'swin/mask-rcnn*': ('AdamW', 1e-4, 0.05),
    'swin/upernet*': ('AdamW', 6e-5, 0.01),
    'vitdet/mask-rcnn*': ('AdamW', 1e-4, 0.1),
}
# Shared stitching layers and stitches, anchors among them, of SN-Netv1 with stages.
STAGED = {
    'swin-ti-s-b': (2 * 2 + 6 + 17, 41),
    'resnet18-50': (2 + 2, 10),
    'resnet18-swin-ti': (1 + 2, 8),
    'levit-192-256': (3 + 3, 8),
}


def marks(name):
    quick = name.startswith(QUICK) and 'no-teacher' not in name
    return [] if quick else [pytest.mark.slow]


@pytest.mark.parametrize('name', EVERY)
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
    if re.search('_[48]xb', name):
        assert loader.pin_memory
        assert cfg.val_dataloader.pin_memory
    assert loader.sampler.type == 'SeededSampler'
    assert loader.dataset.type == 'SeededDataset'
    # What is measured on is the same data set, without random augmentation.
    assert cfg.test_dataloader.dataset.type == loader.dataset.of
    # Stitches of the papers share batch norm statistics.
    papers = ('setr/setr-naive', 'imagenet/snnetv1-*128-*', 'camvid/*-500_')
    statistics = hooks.get('stitch_statistics')
    if statistics and name in ALL and 'dinov2' not in name:
        shared = any(fnmatch(name, f'{pattern}*') for pattern in papers)
        assert statistics.num_images == (0 if shared else 200)
    if fnmatch(name, 'setr/setr*') and 'sam-b-l' not in name:  # as in the paper
        backbone = cfg.model.backbone
        assert all(a.rel_pos_bias for a in backbone.get('anchors', [backbone]))
    if name.startswith(('esta/fgvc', 'esta/vtab')):  # as in Visual Prompt Tuning
        data = cfg.model.get('model', cfg.model).data_preprocessor
        assert data.mean == [123.675, 116.28, 103.53]
        assert data.std == [58.395, 57.12, 57.375]


@pytest.mark.parametrize('name', RUNS)
def test_run_trains_as_long_as_its_name_says_by_the_recipe_of_the_authors(name):
    cfg = read(name)
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
    recipe = (r for pattern, r in RECIPES.items() if fnmatch(name, pattern))
    if recipe := next(recipe, None):
        settings = cfg.optim_wrapper.optimizer
        found = settings.type, settings.lr, settings.weight_decay
        assert found == recipe


@pytest.mark.parametrize('name', runs('dpt/dpt_*nyu*'))
def test_trainings_of_nyu_are_those_of_the_authors(name):
    cfg, model = load(name)
    backbone = model.backbone
    for anchor in getattr(backbone, 'anchors', [backbone]):
        assert (anchor.grid, anchor.pos_embed_antialias) == ((14, 14), False)
    if 'snnet' in name:
        assert cfg.default_hooks.stitch_sampling.sampler.per_rank
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    names = {id(p): k for k, p in model.named_parameters()}
    decays = {names[id(p)]: g['weight_decay'] for g in groups for p in g['params']}
    free = {k for k, decay in decays.items() if not decay}
    assert free == {k for k in decays if k.endswith(('pos_embed', 'cls_token'))}
    assert len(free) == (4 if 'snnet' in name else 2)


@pytest.mark.parametrize('name', runs('imagenet/*'))
def test_trainings_of_imagenet_are_those_of_the_authors(name):
    cfg = Config.fromfile(RUNS[name].config)
    assert cfg.optim_wrapper.type == 'AmpOptimWrapper'
    plain = 'swin' in name or 'resnet' in name
    sampler = dict(shuffle=True) if plain else dict(of='InfiniteRepeatAugSampler')
    assert cfg.train_dataloader.sampler == dict(type='SeededSampler', **sampler)
    if 'deit3' in name:
        assert cfg.optim_wrapper.optimizer.eps == 1e-8
    family = re.search(r'/snnetv1-(.*?)(-no-teacher)?_', name)
    if family and family[1] in STAGED:
        backbone = load(name)[1].backbone
        found = len(backbone.stitching_layers), len(backbone.space)
        assert found == STAGED[family[1]]
        assert f', {found[1]} stitches' in RUNS[name].config.read_text()


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
    metric, worst = WORST['depth' if 'dpt' in name else kind]
    found = [v for k, v in metrics.items() if k.endswith(metric)]
    assert all(0 <= value <= worst for value in found)
    stitches = {k.partition('/')[0] for k in metrics if k.startswith('stitch_')}
    stitched = hasattr(getattr(runner.model, 'backbone', None), 'space')
    assert len(found) == max(1, len(stitches))
    assert stitched == (len(stitches) > 1)
