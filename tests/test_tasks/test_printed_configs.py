"""The configs that README and tutorial print in full, through the tools they name."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from launching import run_tool
from mmengine.config import Config, ConfigDict
from narrowing import SIDE, WIDTH, narrow_config

import snnet_mm as sn
from snnet_mm.runtime import Detections

ROOT = Path(__file__).parents[2]
PAGE = ROOT / 'docs' / 'tutorials' / 'stock_config.md'
NAMES = 'setr', 'upernet', 'dpt', 'mask-rcnn', 'classifier'


def printed(page):
    return re.findall(r'```python\n(_base_.*?)```', page.read_text(), re.DOTALL)


def test_readme_prints_first_config_of_tutorial():
    assert printed(ROOT / 'README.md') == printed(PAGE)[:1]
    assert len(printed(PAGE)) == len(NAMES)


def narrowed(cfg, data, work_dir):
    """Make the networks small, without pretrained weights; change nothing else."""
    backbone = cfg.model.backbone
    for anchor, width, depth in zip(backbone.anchors, (16, WIDTH), (2, 4), strict=True):
        arch = dict(embed_dims=width, depth=depth, num_heads=2)
        anchor.update(arch=ConfigDict(arch), img_size=SIDE, init_cfg=None)
        if 'window_size' in anchor:
            anchor.update(window_size=2, global_blocks=(depth - 1,))
    backbone.stitching_layer.rank = 2
    if (places := backbone.get('out_indices')) is not None:
        backbone.out_indices = tuple(range(4))[-len(places) :]
    for hook in ('stitch_init', 'stitch_statistics'):
        cfg.default_hooks[hook].num_images = 2
    cfg = narrow_config(cfg, data, work_dir)
    if 'anchor_heads' in cfg.model.get('head', {}):
        cfg.model.head.anchor_heads[0].in_channels = 16
    cfg.dump(work_dir / 'narrow.py')
    return str(work_dir / 'narrow.py')


@pytest.mark.slow
@pytest.mark.parametrize('name', NAMES)
def test_printed_config_trains_tests_and_exports(name, data, run_here, tmp_path):
    path = tmp_path / 'my_config.py'
    path.write_text(printed(PAGE)[NAMES.index(name)])
    config = narrowed(Config.fromfile(path), data, tmp_path)
    run_tool('train.py', config, '--work-dir', tmp_path)
    model = config, (tmp_path / 'last_checkpoint').read_text()

    run_here('test.py', *model, '--work-dir', tmp_path / 'test', '--stitch-id', 'all')
    (written,) = tmp_path.glob('test/*/stitches.json')
    rows = json.loads(written.read_text())['stitches']
    assert len(rows) == 4
    limit = sorted(row['flops'] for row in rows)[1]
    budget = '--budget', f'{limit / 1e9:.12f}G', '--results', written
    run_here('test.py', *model, '--work-dir', tmp_path / 'budget', *budget)
    (chosen,) = tmp_path.glob('budget/*/stitches.json')
    (row,) = json.loads(chosen.read_text())['stitches']
    (same,) = (r for r in rows if r['id'] == row['id'])
    assert row['flops'] <= limit
    assert row['metrics'] == pytest.approx(same['metrics'], nan_ok=True)

    def exported(ids, folder):
        # The image size of detectors is not in the config.
        options = '--stitch-id', ids, '--shape', f'{SIDE}x{SIDE}', '--out', folder
        run_here('export_stitch.py', *model, *options)
        return folder

    out = exported('4', tmp_path / 'alone')
    assert {'stitch_4.py', 'stitch_4.pth'} <= {p.name for p in out.iterdir()}
    runtime = sn.Runtime(exported('0,4', tmp_path / 'bundle'))
    assert [*runtime.stitches] == [0, 4]
    prediction = runtime(np.zeros((SIDE, SIDE, 3), np.uint8))
    if name == 'mask-rcnn':
        assert isinstance(prediction, Detections)
    else:
        assert prediction.shape == ((2,) if name == 'classifier' else (SIDE, SIDE))
