"""tools/research/pair.py."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

from snnet_mm.costs import whole_model_cost
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.stitching import StitchRow, StitchTable
from snnet_mm.utils import load_config

sys.path.append(str(Path(__file__).parents[2] / 'tools' / 'research'))
import pair  # noqa: E402


def write(folder, name, costs, scores):
    """Write results with these costs (GFLOPs) and scores of ten equal images."""
    rows = [
        StitchRow(i, 'anchor', f'route {i}', round(cost * 1e9), 1, (8, 8))
        for i, cost in enumerate(costs)
    ]
    metrics = {i: dict(mIoU=float(score)) for i, score in enumerate(scores)}
    file = folder / name / 'results.json'
    file.parent.mkdir(parents=True)
    StitchTable(rows, digest=name).with_metrics(metrics, 10).save(file)
    above = np.repeat(np.float32(scores)[:, None, None], 10, axis=1)
    ImageScores(
        'mIoU', tuple(metrics), above, np.full_like(above, 100), 100, '', name
    ).save(file.with_name('per_image.npz'))
    return file


def test_pair_compare(tmp_path):
    seeds = [
        dict(
            fast=write(tmp_path, f'fast{seed}', [1], [40 + seed]),
            slow=write(tmp_path, f'slow{seed}', [5], [60]),
            pair=write(tmp_path, f'pair{seed}', [1, 5, 3], [41, 59 - seed, 52]),
        )
        for seed in (0, 1)
    ]
    *rows, area = pair.compare(seeds)
    assert [row['cost'] for row in rows] == ['1.00', '3.00', '5.00']
    assert rows[1]['pair'].seeds == pytest.approx((52, 52))
    assert rows[1]['alone'].seeds == pytest.approx((40, 41))
    # Half-way between the anchors alone, which have 50 and 50.5 there.
    values = [row[name].value for row in rows for name in ('difference', 'line')]
    assert values == pytest.approx([0.5, 0.5, 11.5, 1.75, -1.5, -1.5])
    assert area['pair'].seeds == pytest.approx((46.5, 46.5))
    assert area['difference'].value == pytest.approx(6)
    text = pair.markdown([*rows, area]).splitlines()
    assert text[3] == (
        '| 3.00 | 2: `route 2` | 52.00, 52.00 | 40.00, 41.00 | +11.50 [11.50, 11.50] '
        '| +1.75 [1.75, 1.75] |'
    )
    assert text[-1].startswith('| 1.00 - 5.00 | area under front | 46.50, 46.50 |')


def test_pair_both_sides_cost_the_same():
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope('mmseg')
    configs = [load_config(file) for file in (pair.FAST, pair.SLOW, pair.PAIR)]
    alone = [
        whole_model_cost(MODELS.build(cfg.model), (168, 238))[0].flops
        for cfg in configs[:2]
    ]
    # Stitches 0, 6, 7, 8 and twice 1, as docs/explanation/experiments.md has them.
    drawn = (1.67 + 2.49 + 3.28 + 4.07 + 2 * 4.80) / 6 * 1e9
    found = pair.iterations_alone(*configs, 1200)
    assert found * sum(alone) == pytest.approx(1200 * drawn, 0.002)


def test_pair_trains_and_tests_what_is_missing(tmp_path, monkeypatch):
    commands = []

    def run(command, check):
        tool, config, *options = (str(part) for part in command[1:])
        folder = Path(options[options.index('--work-dir') + 1])
        commands.append((Path(tool).name, Path(config), folder.name, options))
        folder.mkdir(parents=True)
        if tool.endswith('train.py'):
            (folder / f'iter_{options[options.index("--iters") + 1]}.pth').touch()
        else:
            name = 'stitches' if '--stitch-id' in options else 'results'
            (folder / f'{name}.json').touch()

    monkeypatch.setattr(pair.subprocess, 'run', run)
    monkeypatch.setattr(pair, 'iterations_alone', lambda *given: given[-1] // 2)
    args = argparse.Namespace(iters=6, stitched=12, amp=True, weights='dinov2.pth')
    models = pair.Models(tmp_path, 3, args)
    results = models.results()
    assert results['test']['slow'] == tmp_path / 'slow-test' / 'results.json'
    assert results['val']['pair'] == tmp_path / 'pair-val' / 'stitches.json'
    assert [name for *_, name, _ in commands] == [
        *('slow', 'fast', 'pair', 'slow-more', 'fast-more'),
        *(f'{name}-{split}' for split in pair.SPLITS for name in results[split]),
    ]
    by_name = {name: (config, options) for _, config, name, options in commands}
    config, options = by_name['pair']
    assert config == pair.PAIR
    assert {
        *('--amp', 'randomness.seed=3'),
        f'model.backbone.anchors.0.init_cfg.checkpoint={tmp_path}/fast/iter_6.pth',
        f'model.backbone.anchors.1.init_cfg.checkpoint={tmp_path}/slow/iter_6.pth',
        f'model.decode_head.init_cfg.checkpoint={tmp_path}/slow/iter_6.pth',
    } <= {*options}
    config, options = by_name['fast-more']
    assert config == pair.FAST
    assert options[:2] == ['--iters', '6']
    assert f'model.init_cfg.checkpoint={tmp_path}/fast/iter_6.pth' in options
    config, options = by_name['slow-test']
    assert options[0] == f'{tmp_path}/slow-more/iter_6.pth'
    assert 'test_dataloader.dataset.data_prefix.img_path=images/test' in options
    commands.clear()
    (tmp_path / 'fast-val' / 'results.json').unlink()
    (tmp_path / 'fast-val').rmdir()
    assert models.results() == results
    assert [name for *_, name, _ in commands] == ['fast-val']
