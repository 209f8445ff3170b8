"""The configs of ESTA: what is trained, and by which recipe."""

import math
import re

import pytest
from config_models import CONFIGS, load, paths, read
from mmengine.runner import Runner
from narrow_configs import narrow

from snnet_mm.evaluation import count_parameters
from snnet_mm.stitching import StitchResults

PAGE = CONFIGS.parent / 'docs' / 'esta.md'
TOY = CONFIGS / 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
CUB = 'esta/fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py'
# Classes, and training images of the split in visual prompt tuning.
DATA = {
    'cub': (200, 5394),
    'cars': (196, 7329),
    'dogs': (120, 10800),
    'nabirds': (555, 21536),
    'flowers': (102, 1020),
    'cars-16shot': (196, 3136),
    'cifar100': (100, 50000),
    'caltech101': (102, 800),
}


def sampling(cfg):
    return cfg.default_hooks.stitch_sampling.sampler


def test_trained_parameters_of_the_paper():
    """Table 1: 4.6 M. The paper gives 1.4 M for the biases; here they are 1.6 M."""
    _, model = load(CUB)
    counts = {part: c.trained for part, c in count_parameters(model).items()}
    widths = 192, 384, 768
    # Ranks 32, 16 and 8, each times 8 widths for A and B of qkv and proj, in 12 blocks.
    lora = sum(12 * r * 6 * d for r, d in zip((32, 16, 8), widths, strict=True))
    layers = 11 * (48 * (192 + 384) + 96 * (384 + 768))
    # Every block that a stitch runs has 4 widths: 12 joints (i, i), 11 (i, i + 1) and
    # 11 (i + 1, i) per pair, on average half of their 13 blocks in either anchor.
    pairs = 34 * 13 // 2 * 4 * ((192 + 384) + (384 + 768))
    biases = pairs + 12 * 4 * sum(widths)
    heads = sum(d * 200 + 200 for d in widths)
    assert counts == {
        'backbone.anchors': lora,
        'backbone.stitching_layers': layers,
        'backbone.stitch_biases': biases,
        'head': heads,
    }
    assert sum(counts.values()) / 1e6 == pytest.approx(4.6, abs=0.2)
    assert len(model.backbone.space) == 71


@pytest.mark.parametrize('name', [*paths('esta/fgvc/*.py'), *paths('esta/vtab/*.py')])
def test_recipe_of_appendix_a(name):
    cfg, model = load(name)
    classes, images = DATA[name.split('_')[2].removesuffix('-224x224.py')]
    epoch = math.ceil(images / cfg.train_dataloader.batch_size)
    assert model.head.num_classes == classes
    assert cfg.train_cfg.max_iters == 100 * epoch
    warm_up, cosine = cfg.param_scheduler
    assert warm_up.end == cosine.begin == 10 * epoch
    if 'snnetv1' in name:
        assert sampling(cfg).sampler.warm_up == 10 * epoch
    assert cosine.end == 100 * epoch
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(1e-3 * 64 / 256)


def test_baselines_of_figures_3_and_6():
    name = 'esta/fgvc/{}-augreg-{}_1xb64-100e_cub-224x224.py'
    for size, width, rank in (('ti', 192, 32), ('s', 384, 16), ('b', 768, 8)):
        counts = count_parameters(load(name.format('lora', size))[1])
        head = width * 200 + 200
        assert sum(c.trained for c in counts.values()) == 72 * rank * width + head
        counts = count_parameters(load(name.format('full', size))[1])
        assert all(c.trained == c.total for c in counts.values())
    cfg, model = load(name.format('adapt-then-stitch', 'ti-s-b'))
    assert all(p.requires_grad for p in model.parameters())
    assert sampling(cfg).type == 'UniformSampler'
    anchors, heads = cfg.model.backbone.anchors, cfg.model.head.anchor_heads
    for anchor, head, size in zip(anchors, heads, ('ti', 's', 'b'), strict=True):
        stem = f'full-augreg-{size}_1xb64-100e_cub-224x224'
        assert anchor.init_cfg.checkpoint == f'work_dirs/{stem}/iter_8500.pth'
        assert anchor.init_cfg.checkpoint == head.init_cfg.checkpoint


@pytest.mark.parametrize(
    'variant, anchors, layers, biases',
    [
        ('', 27648, 19200, 69888),
        ('-uniform', 27648, 19200, 69888),
        ('-no-bias', 27648, 19200, None),
        ('-scaled-r', 69120, 48000, None),
        ('-full-sl', 27648, 52160, 69888),
        ('-full', 1741824, 52160, None),
    ],
)
def test_rows_of_figure_6(variant, anchors, layers, biases):
    name = f'esta/tiny/esta-ti-s-b{variant}_1xb64-600_tinyimagenet20-64x64.py'
    cfg, model = load(name)
    found = {part: c.trained for part, c in count_parameters(model).items()}
    assert found.pop('head') == sum(d * 20 + 20 + 2 * d for d in (32, 64, 128))
    assert found.pop('backbone.stitch_biases', None) == biases
    assert list(found.values()) == [anchors, layers]
    assert ('sampler' in sampling(cfg)) == (variant != '-uniform')


def test_the_config_on_the_page_about_esta(tmp_path):
    snippet = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / 'a.py').write_text(snippet.replace('./my_stitched_model.py', str(TOY)))
    cfg = read(tmp_path / 'a.py')
    narrow(cfg, tmp_path, tmp_path)
    sampling(cfg).sampler.warm_up = 1
    cfg.train_cfg.max_iters = cfg.default_hooks.checkpoint.interval = 2
    runner = Runner.from_cfg(cfg)
    runner.train()
    space = runner.model.backbone.space
    scores = StitchResults.read(tmp_path / 'stitch_scores.json', space)
    assert len(scores.stitches) in (2, 3)
    assert space.anchor_ids[-1] in scores.scores()
