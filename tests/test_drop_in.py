"""The config snippets of README and tutorial, as printed, from training to export."""

from pathlib import Path

import mmseg
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS
from narrow_configs import write_data
from stock_configs import narrow_stock
from test_readme import README, STOCK, STOCK_PAGE, python_of
from toy import without_weights

import snnet_mm as sn
from snnet_mm.training import run

ARCH = 'dict(embed_dims={}, depth=4, num_heads=2)'
# Narrow anchors in place of those of the snippets.
NARROW = {
    'arch=arch': f'arch={ARCH.format("dict(small=16, large=32)[arch]")}',
    "arch='small'": f'arch={ARCH.format(16)}',
    "arch='large'": f'arch={ARCH.format(32)}',
    '(9, 14, 19, 23)': '(0, 1, 2, 3)',
    'num_images=100': 'num_images=2',
    'num_images=200': 'num_images=4',
    'img_size=512': 'img_size=64',
}


@pytest.mark.slow
@pytest.mark.parametrize('page', [README, STOCK_PAGE], ids=lambda page: page.stem)
def test_snippet_trains_is_tested_by_id_and_budget_and_exported(page, tmp_path):
    snippet = python_of(page)[0]
    for words, narrow in NARROW.items():
        snippet = snippet.replace(words, narrow)
    stock = Path(mmseg.__file__).parent / '.mim' / 'configs' / STOCK
    own = tmp_path / 'own.py'
    own.write_text(f'_base_ = [{str(stock)!r}]\n{snippet}')
    cfg = Config.fromfile(own)
    write_data(tmp_path / 'data', DATASETS.get('mmdet.CocoDataset').METAINFO['classes'])
    narrow_stock(cfg, tmp_path / 'data', tmp_path / 'work')
    without_weights(cfg.model)
    cfg.dump(tmp_path / 'stitched.py')
    config = tmp_path / 'stitched.py'
    checkpoint = sn.train(config, tmp_path / 'work', iters=2)
    by_id = run.results_of(run.test(config, checkpoint, stitches='2'))
    assert [*by_id] == [2]
    everything = sn.evaluate(config, checkpoint, 'all', tmp_path / 'all')
    flops = everything.column('flops')
    limit = sorted(flops.values())[len(flops) // 2]
    by_budget = run.test(config, checkpoint, stitches=f'{limit / 1e9}G')
    (chosen,) = run.results_of(by_budget)
    assert flops[chosen] <= limit
    model = sn.load(config, checkpoint, device='cpu')
    sn.export(model, tmp_path / 'bundle', sorted({0, chosen}))
    runtime = sn.Runtime(tmp_path / 'bundle')
    assert runtime(np.zeros((64, 64, 3), np.uint8)).shape == (64, 64)
