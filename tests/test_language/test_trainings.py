"""Stitched language models in mmengine's runner, with the hooks and loops of ESTA."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from config_models import load, read
from mmengine.registry import METRICS
from mmengine.runner import Runner
from training_twice import train_twice

from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import load_weights_only

pytest.importorskip('transformers')


TINY = 'esta/llama/esta-llama-fast-slow_1xb8-300_python-128.py'
PAPER = 'esta/llama/esta-llama-7b-13b_1xb4-10e_alpaca-512.py'


@pytest.fixture
def cfg(tmp_path):
    """The tiny pair's config of anchors of two and four blocks, on 20 files."""
    for i in range(20):
        (tmp_path / f'{i:02}.txt').write_text(f'{i:02}' * (3 + i))
    cfg = read(TINY)
    for anchor, width in zip(cfg.model.backbone.anchors, (16, 24), strict=True):
        del anchor['init_cfg']
        anchor.lora.rank = 2
        anchor.model.update(hidden_size=width, intermediate_size=24)
        anchor.model.update(num_hidden_layers=width // 6, num_attention_heads=2)
    cfg.model.data_preprocessor.length = 16
    data = dict(data_root=str(tmp_path), pattern='*.txt', length=16)
    for mode in ('train', 'val', 'test'):
        cfg[f'{mode}_dataloader'].dataset.update(data)
        cfg[f'{mode}_dataloader'].batch_size = 3
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.default_hooks.stitch_sampling.sampler.update(warm_up=2, num_groups=2)
    cfg.train_cfg.val_interval = 100
    cfg.update(param_scheduler=[], work_dir=str(tmp_path), log_level='ERROR')
    return cfg


@pytest.mark.slow
def test_causal_lm_training_resumes_exactly(cfg):
    folder, recorder, _ = train_twice(cfg, 2, 4)
    trained = load_weights_only(folder / 'iter_4.pth')['state_dict']
    moved = {k for k, v in trained.items() if not v.equal(recorder.start[k])}
    for part in ('anchors', 'stitching_layers', 'stitch_biases'):
        assert any(f'.{part}.' in k for k in moved)
    assert all('lora_' in k for k in moved if '.anchors.' in k)


def test_perplexity_of_all_stitches(cfg):
    runner = Runner.from_cfg(cfg)
    metrics = runner.test()
    results = StitchTable.read(Path(runner.log_dir) / 'stitches.json')
    assert (results.metric, results.higher_is_better) == ('perplexity', False)
    assert results.input_size == (1, 16)
    assert {*results} == {*find_stitched_backbone(runner.model).space.ids}
    set_stitch(runner.model, 1)
    loaded = (runner.model.data_preprocessor(x) for x in runner.test_dataloader)
    found = [
        sample for data in loaded for sample in runner.model(**data, mode='predict')
    ]
    nll, number = (sum(s.get(key) for s in found) for key in ('nll', 'num_targets'))
    assert metrics['stitch_1/perplexity'] == pytest.approx(math.exp(nll / number))
    metric = METRICS.build(dict(type='Perplexity'))
    assert math.isnan(metric.compute_metrics([(0.0, 0)])['perplexity'])


def test_causal_lm_models_of_the_paper():
    """Section 5.2: ranks of 16 and d1 / 4, batches of 128 in all."""
    cfg, model = load(PAPER)
    net, held = find_stitched_backbone(model), []
    for anchor in net.anchors:
        held.append(sum(p.numel() for p in anchor.parameters() if not p.requires_grad))
        assert anchor.blocks[0].self_attn.q_proj.rank == 16
    assert held == [6738415616, 13015864320]
    assert {s.kind for s in net.space} == {'anchor', 'FS'}
    # SN-Netv1's code enters every block of the slow network but the first.
    joints = [s.segments[1].begin for s in net.space if s.kind == 'FS']
    assert joints == [*range(1, 40)]
    assert {layer.rank for layer in net.stitching_layers.values()} == {4096 // 4}
    batch = cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts
    assert batch == 128


def test_causal_lm_largest_anchor_teaches_others(cfg):
    teaching = dict(labels='hard', alpha=0.25, logits_from='target_logits')
    cfg.model = dict(type='SandwichWrapper', model=cfg.model, **teaching)
    runner = Runner.from_cfg(cfg)
    model, space = runner.model, find_stitched_backbone(runner.model).space
    data = model.data_preprocessor(next(iter(runner.test_dataloader)))
    model.on_stitches([space[2], space[1]])
    losses = model.loss(**data)
    logits = {}
    for i in (1, 2):
        set_stitch(model, i)
        logits[i] = model.wrapped(data['inputs'], mode='tensor')
    known = [len(sample.labels[0]) - 1 for sample in data['data_samples']]
    for i, found in logits.items():
        rows = [x[:n] for x, n in zip(found, known, strict=True)]
        logits[i] = torch.cat(rows)
    labels = torch.cat([sample.labels[0, 1:] for sample in data['data_samples']])
    plain = {i: F.cross_entropy(x, labels) for i, x in logits.items()}
    taught = F.cross_entropy(logits[2], logits[1].argmax(1))
    of_stitch = sum(v for k, v in losses.items() if k.startswith('stitch0.'))
    torch.testing.assert_close(losses['slowest.loss'], plain[1])
    torch.testing.assert_close(of_stitch, 0.75 * plain[2] + 0.25 * taught)
