"""Stitched language models in mmengine's runner, with the hooks and loops of ESTA."""

import math
from pathlib import Path

import pytest
import torch
from config_models import load, read
from mmengine.registry import METRICS
from mmengine.runner import Runner
from test_text_datasets import write_files
from torch import nn

from snnet_mm.models import set_stitch
from snnet_mm.stitching import StitchResults

TINY = 'esta/llama/esta-llama-fast-slow_1xb8-300_python-128.py'


@pytest.fixture
def config(tmp_path):
    """The tiny pair's, with anchors of two and four blocks that need no weights."""
    (tmp_path / 'texts').mkdir()
    data = write_files(tmp_path / 'texts')
    del data['type']

    def build(name, iters=4, interval=4):
        cfg = read(TINY)
        for anchor, width in zip(cfg.model.backbone.anchors, (16, 24), strict=True):
            del anchor['init_cfg']
            anchor.lora.rank = 2
            anchor.model.update(hidden_size=width, intermediate_size=24)
            anchor.model.update(num_hidden_layers=width // 6, num_attention_heads=2)
        cfg.model.data_preprocessor.length = 16
        for mode in ('train', 'val', 'test'):
            cfg[f'{mode}_dataloader'].dataset.update(data)
            cfg[f'{mode}_dataloader'].batch_size = 3
        cfg.default_hooks.stitch_init.num_images = 6
        cfg.default_hooks.stitch_sampling.sampler.update(warm_up=2, num_groups=2)
        cfg.default_hooks.checkpoint.interval = interval
        cfg.train_cfg.update(max_iters=iters, val_interval=100)
        cfg.param_scheduler, cfg.work_dir = [], str(tmp_path / name)
        cfg.log_level = 'ERROR'
        return cfg

    return build


def test_resuming_is_exact(config, tmp_path):
    whole = Runner.from_cfg(config('whole'))
    start = {k: v.clone() for k, v in whole.model.state_dict().items()}
    whole.train()
    moved = {k for k, v in whole.model.state_dict().items() if not v.equal(start[k])}
    kinds = {k.split('backbone.')[1].split('.')[0] for k in moved}
    assert {*kinds} >= {'anchors', 'stitching_layers', 'stitch_biases'}
    assert all('lora_' in k for k in moved if '.anchors.' in k)

    Runner.from_cfg(config('halves', iters=2, interval=2)).train()
    cfg = config('halves', interval=2)
    cfg.resume = True
    rest = Runner.from_cfg(cfg)
    rest.train()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], value), name
    scores = [Path(tmp_path, n, 'stitch_scores.json') for n in ('whole', 'halves')]
    assert scores[0].read_text() == scores[1].read_text()


def test_all_stitches_are_tested_in_one_pass(config, tmp_path):
    cfg = config('test')
    cfg.model.backbone.plugins = None  # stitches share their first blocks
    runner = Runner.from_cfg(cfg)
    net, ran = runner.model.backbone, []
    hooks = [
        # Costs are counted on meta tensors.
        block.register_forward_hook(lambda *args: ran.append(not args[2].is_meta))
        for anchor in net.anchors
        for block in anchor.blocks
    ]
    metrics = runner.test()
    for hook in hooks:
        hook.remove()
    blocks = {s.steps[: n + 1] for s in net.space for n in range(len(s.steps))}
    blocks = sum(
        not isinstance(steps[-1], str) and steps[-1].block >= 0 for steps in blocks
    )
    assert sum(ran) == blocks * len(runner.test_dataloader)
    assert len(metrics) == len(net.space)

    results = StitchResults.read(Path(runner.log_dir) / 'stitches.json')
    assert (results.metric, results.higher_is_better) == ('perplexity', False)
    assert results.input_size == (1, 16)
    dataset = runner.test_dataloader.dataset
    for stitch in net.space:
        set_stitch(runner.model, stitch.id)
        nll, number = 0.0, 0
        for i in range(len(dataset)):
            ids = dataset[i]['inputs']
            with torch.no_grad():
                logits = runner.model.eval()(ids[None])[0]
            nll += nn.functional.cross_entropy(
                logits[:-1], ids[0, 1:], reduction='sum'
            ).item()
            number += ids.shape[1] - 1
        found = metrics[f'stitch_{stitch.id}/perplexity']
        assert found == pytest.approx(math.exp(nll / number), rel=1e-4)


def test_perplexity_of_nothing_is_none():
    metric = METRICS.build(dict(type='Perplexity'))
    assert math.isnan(metric.compute_metrics([(0.0, 0)])['perplexity'])
    assert metric.compute_metrics([(2.0, 1), (4.0, 2)])['perplexity'] == math.exp(2)


def test_the_models_of_the_paper():
    """Section 4.3: ranks of 16 and d1 / 4, and what LLaMA-7B and 13B hold."""
    cfg, model = load('esta/llama/esta-llama-7b-13b_1xb4-10e_alpaca-512.py')
    held = [
        sum(p.numel() for name, p in anchor.named_parameters() if 'lora_' not in name)
        for anchor in model.backbone.anchors
    ]
    assert held == [6738415616, 13015864320]
    assert {s.kind for s in model.backbone.space} == {'anchor', 'FS'}
    assert {layer.rank for layer in model.backbone.stitching_layers.values()} == {1024}
    batch = cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts
    assert batch == 128
