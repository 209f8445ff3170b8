import io
import runpy
import sys
from contextlib import redirect_stdout

import launching
import pytest
import torch
from running_here import run_here  # noqa: F401
from tiny import TOY
from toy import SHORT, disturb, narrow_toy

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
    """Folder and output of the demo with few iterations."""
    work_dir, printed = tmp_path_factory.mktemp('demo'), io.StringIO()
    path = str(launching.ROOT / 'tools' / 'demo.py')
    args = '--work-dir', work_dir, '--iters', 3, '--num-scenes', 10, '--traceback'
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, 'argv', [path, *map(str, args)])
        runpy.run_path(path, run_name='__main__')
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
