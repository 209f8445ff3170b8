"""The configs of ESTA: what is trained, and the page about it."""

import re

import pytest
from config_models import CONFIGS, PAPERS, RUNS, build_on_meta, config_of, load, read
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from narrowing import narrow_own
from reproduce import find_items, find_runs

from snnet_mm.costs import count_parameters
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import StitchTable

PAGE = CONFIGS.parent / 'docs/how_to/esta.md'
TOY = CONFIGS / 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
CUB = 'esta/fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py'


@pytest.mark.parametrize('data', ['cub', 'cars', 'dogs', 'nabirds', 'flowers'])
def test_esta_adapted_anchors_have_the_same_recipe(data):
    """Figure 6d, on five data sets."""
    name = f'esta/fgvc/adapt-then-esta-augreg-ti-s-b_1xb64-100e_{data}-224x224'
    adapted, esta = read(name), read(name.replace('adapt-then-esta', 'snnetv1'))
    classifier, last = adapted.model.model, adapted.train_cfg.max_iters
    parts = *classifier.backbone.anchors, *classifier.head.anchor_heads
    for part, size in zip(parts, ('ti', 's', 'b') * 2, strict=True):
        folder = f'work_dirs/full-augreg-{size}_1xb64-100e_{data}-224x224'
        assert part.init_cfg.checkpoint == f'{folder}/iter_{last}.pth'
        full = 'head.anchor_heads.0.' if part in parts[3:] else 'backbone.'
        assert part.init_cfg.prefix == full
        part.init_cfg = None
    classifier = esta.model.model
    for part in (*classifier.backbone.anchors, *classifier.head.anchor_heads):
        part.init_cfg = None
    for key in ('model', 'optim_wrapper', 'param_scheduler', 'default_hooks'):
        assert adapted[key] == esta[key]


def test_esta_trains_parameters_of_the_paper():
    """Table 1: 4.6 M. The paper gives 1.4 M for the biases; here they are 1.6 M."""
    _, model = load(CUB)
    counts = {part: n for part, (n, _) in count_parameters(model).items()}
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
    # Updates of rank 1 of every stitch, with 4 widths of qkv and 2 of proj.
    _, model = load(CUB.replace('-b_', '-b-stitch-lora_'))
    counts |= {'backbone.anchors': 0, 'backbone.stitch_lora': biases * 6 // 4}
    del counts['backbone.stitch_biases']
    assert {k: n for k, (n, _) in count_parameters(model).items()} == counts


def test_esta_naive_lora_at_several_ranks():
    """Figure 12: half, one and a half, and twice the ranks, without biases."""
    found = find_runs(find_items(PAPERS, 'ESTA figure 12'), RUNS, small=False)
    runs = {r.name.partition('_cub-224x224')[2]: r for r in found if '_cub-' in r.name}
    _, model = load(CUB)
    whole = {part: n for part, (n, _) in count_parameters(model).items()}
    del whole['backbone.stitch_biases']
    ranks = {'-no-bias-r16': 0.5, '-no-bias': 1, '-scaled-r': 1.5, '-no-bias-r64': 2}
    for variant, share in ranks.items():
        cfg = config_of(runs[variant])
        init_default_scope(cfg.default_scope)
        counts = count_parameters(build_on_meta(cfg)).items()
        parts = dict.fromkeys(whole, share) | dict(head=1)
        expected = {part: share * whole[part] for part, share in parts.items()}
        assert {part: n for part, (n, _) in counts} == expected


def test_esta_adapters_train_as_many_parameters_as_lora():
    """Biases of the adapters aside (ESTA, figure 7, left)."""
    found = find_runs(find_items(PAPERS, 'ESTA figure 7'), RUNS, small=False)
    found = [run for run in found if '_cub-' in run.name]
    runs = {run.name.partition('224x224')[2]: run for run in found}
    for variant in ('', '-adapter', '-adaptformer'):
        cfg = config_of(runs[variant])
        init_default_scope(cfg.default_scope)
        for anchor in find_stitched_backbone(build_on_meta(cfg)).anchors:
            weights = [p for p in anchor.parameters() if p.requires_grad and p.ndim > 1]
            assert sum(p.numel() for p in weights) == 12 * 6 * 32 * 192
            if variant:
                mlp = anchor.blocks[0].mlp
                assert mlp.parallel == (variant == '-adaptformer')


def test_esta_convnexts_parameters():
    """Figure 9a names neither ranks nor layers."""
    _, model = load('esta/fgvc/snnetv1-convnext-t-s-b_1xb64-100e_cub-224x224.py')
    space = model.backbone.space
    assert len(space) == 3 + 2 * (2 + 2 + 26)
    counts = {part: n for part, (n, _) in count_parameters(model).items()}
    narrow, wide = (96, 192, 384, 768), (128, 256, 512, 1024)
    sizes = (32, (3, 3, 9, 3), narrow), (16, (3, 3, 27, 3), narrow)
    sizes = (*sizes, (8, (3, 3, 27, 3), wide))
    # Two layers, of one and four widths on their sides, in every block.
    lora = [
        10 * rank * sum(d * n for d, n in zip(dims, depths, strict=True))
        for rank, depths, dims in sizes
    ]
    assert counts['backbone.anchors'] == sum(lora) == 5729280
    of_anchor = model.backbone.stitch_biases.get_parameter
    for i, (rank, *_) in enumerate(sizes):
        assert 2 * rank * of_anchor(str(i)).numel() == lora[i]
    assert sum(counts.values()) == 14747704


def test_esta_page_config_trains(tmp_path):
    snippet = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / 'a.py').write_text(snippet.replace('./my_stitched_model.py', str(TOY)))
    cfg = read(tmp_path / 'a.py')
    narrow_own(cfg, tmp_path, tmp_path)
    cfg.default_hooks.stitch_sampling.sampler.sampler.warm_up = 1
    cfg.train_cfg.max_iters = cfg.default_hooks.checkpoint.interval = 2
    runner = Runner.from_cfg(cfg)
    runner.train()
    space = runner.model.backbone.space
    scores = StitchTable.read(tmp_path / 'stitch_scores.json', space)
    assert len(scores.rows) in (2, 3)
    assert space.anchor_ids[-1] in scores.scores()
