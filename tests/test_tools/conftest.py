import io
import sys
from contextlib import redirect_stdout
from functools import partial

import launching
import pytest
import torch
from mmengine.config import Config
from narrow_toy import SHORT, disturb, narrow_toy
from running_here import run_here  # noqa: F401
from tiny import TOY

from snnet_mm import api
from snnet_mm.costs import cost_table
from snnet_mm.exports import StitchExporter
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import find_stitched_backbone


@pytest.fixture(scope='session')
def run_tool():
    """Runs a tool as a user would, from the repository root."""

    def run(tool, *args):
        done = launching.run_tool(tool, *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope='session')
def demo(tmp_path_factory):
    """Folder and output of the demo with few iterations, images, blocks and budgets."""
    work_dir, printed = tmp_path_factory.mktemp('demo'), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.syspath_prepend(launching.ROOT / 'tools')
        import demo

        def write_short(name, *args):
            cfg = Config.fromfile(path := write_config(name, *args))
            cfg.model.backbone.arch.depth = dict(fast=2, slow=3)[name]
            cfg.dump(path)
            return path

        write_config = demo.write_config
        args = '--work-dir', work_dir, '--iters', 2, '--num-scenes', 10
        patch.setattr(sys, 'argv', ['demo.py', *map(str, args)])
        patch.setattr(demo, 'write_config', write_short)
        patch.setattr(demo, 'BUDGETS', '80%,60%')
        elastic = partial(api.make_elastic, num_images=4)
        patch.setattr(api, 'make_elastic', elastic)
        demo.main()
    return work_dir, printed.getvalue()


@pytest.fixture(scope='session')
def untrained(tmp_path_factory):
    """Random weights of the toy segmentor, and invented results."""
    folder, model = tmp_path_factory.mktemp('untrained'), init_model(TOY, None)
    with torch.no_grad():
        model.decode_head.conv_seg.weight.normal_()
    torch.save(dict(state_dict=model.state_dict()), folder / 'weights.pth')
    space = find_stitched_backbone(model).space
    scores = {i: dict(mIoU=float(i * 7 % 15)) for i in space.ids}
    results = cost_table(model).with_metrics(scores)
    results.save(folder / 'stitches.json')
    return folder / 'weights.pth', folder / 'stitches.json'


@pytest.fixture(scope='session')
def narrow(tmp_path_factory):
    """Folder with config, weights, results and bundle of a narrow segmentor."""
    pytest.importorskip('onnxruntime')
    folder, cfg = tmp_path_factory.mktemp('narrow'), narrow_toy(sizes=SHORT)
    cfg.dump(folder / 'config.py')
    model = init_model(cfg, None, device='cpu')
    torch.manual_seed(1)
    disturb(model)
    model.decode_head.conv_seg.bias.data.zero_()  # otherwise one class wins
    torch.save(dict(state_dict=model.state_dict()), folder / 'weights.pth')
    space, costs = model.backbone.space, cost_table(model)
    scores = {i: dict(mIoU=float(i * 7 % 15)) for i in space.ids}
    results = costs.with_metrics(scores)
    results.save(folder / 'stitches.json')
    StitchExporter(cfg, model, folder / 'bundle').export_bundle((0, 1))
    return folder


@pytest.fixture(scope='session')
def bundle(narrow):
    """The bundle of stitches 0 and 1 of the narrow segmentor."""
    return narrow / 'bundle'
