import json
import re

import pytest
from launching import ROOT
from mmengine.config import Config

from snnet_mm import api


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What the demo prints, with few iterations, images, blocks and budgets."""
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import demo

    def write_short(name, *args):
        cfg = Config.fromfile(path := write_config(name, *args))
        cfg.model.backbone.arch.depth = dict(fast=2, slow=3)[name]
        cfg.dump(path)
        return path

    write_config, make_elastic = demo.write_config, api.make_elastic
    args = 'demo.py', '--work-dir', str(tmp_path), '--iters', '2', '--num-scenes', '10'
    monkeypatch.setattr('sys.argv', [*args])
    monkeypatch.setattr(demo, 'write_config', write_short)
    monkeypatch.setattr(demo, 'BUDGETS', '80%,60%')
    monkeypatch.setattr(
        api, 'make_elastic', lambda *args, **kw: make_elastic(*args, **kw, num_images=4)
    )
    demo.main()
    return capsys.readouterr().out


@pytest.mark.slow
def test_demo_makes_networks_elastic_in_both_ways(printed, tmp_path):
    for name, number, form in (('stitched', 4, '.2f'), ('elastic', 3, '.4g')):
        rows = json.loads((tmp_path / name / 'stitches.json').read_text())['stitches']
        assert len(rows) == number
        for row in rows:
            left_out = re.search(rf'Not listed.*\b{row["id"]}\b', printed)
            assert format(row['metrics']['mIoU'], form) in printed or left_out
        for picture in ('pareto.png', 'predictions.png'):
            assert (tmp_path / name / picture).read_bytes().startswith(b'\x89PNG')
    tools = re.findall(r'^  python tools/(\w+).py', printed, re.MULTILINE)
    assert tools == ['test', 'test', 'export_stitch', 'web_demo']
