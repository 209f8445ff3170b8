import io
import json
import sys
from contextlib import redirect_stdout
from functools import partial

import launching
import pytest
import torch
from manifests import MANIFEST
from mmengine.config import Config
from running_here import run_here  # noqa: F401
from tiny import TOY
from toy import SHORT, disturb, narrow_toy

from snnet_mm import api
from snnet_mm.costs import cost_table
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import find_stitched_backbone
from snnet_mm.runtime.bundle import describe_file


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
    """Folder with config, weights and results of a narrow segmentor."""
    folder, cfg = tmp_path_factory.mktemp('narrow'), narrow_toy(sizes=SHORT)
    cfg.dump(folder / 'config.py')
    model = init_model(cfg, None, device='cpu')
    torch.manual_seed(1)
    disturb(model)
    model.decode_head.conv_seg.bias.data.zero_()  # otherwise one class wins
    torch.save(dict(state_dict=model.state_dict()), folder / 'weights.pth')
    scores = {i: dict(mIoU=float(i * 7 % 15)) for i in model.backbone.space.ids}
    cost_table(model).with_metrics(scores).save(folder / 'stitches.json')
    return folder


@pytest.fixture(scope='session')
def bundle(tmp_path_factory):
    """A bundle whose stitches 0 and 1 find bright red and bright green pixels.

    Each is a convolution of one pixel; real networks are exported in test_exports.
    """
    onnx = pytest.importorskip('onnx')
    pytest.importorskip('onnxruntime')
    folder, size = tmp_path_factory.mktemp('bundle'), [64, 64]
    resize = dict(step='resize', size=size, keep_ratio=False, interpolation='bilinear')
    before = [resize, dict(step='channels', order='RGB'), dict(step='batch')]
    after = [dict(step='resize', align_corners=False), dict(step='argmax', axis=1)]
    entry, graphs = MANIFEST['stitches'][0], []
    for i, weights in enumerate(([0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0])):
        tensors = [
            onnx.helper.make_tensor('w', 1, [2, 3, 1, 1], weights),
            onnx.helper.make_tensor('b', 1, [2], [127, 0]),
        ]
        sides = [
            onnx.helper.make_tensor_value_info(name, 1, ['batch', channels, *size])
            for name, channels in (('images', 3), ('predictions', 2))
        ]
        node = onnx.helper.make_node('Conv', ['images', 'w', 'b'], ['predictions'])
        graph = onnx.helper.make_graph([node], 'g', sides[:1], sides[1:], tensors)
        versions = dict(opset_imports=[onnx.helper.make_opsetid('', 17)], ir_version=8)
        path = folder / f'stitch_{i}.onnx'
        onnx.save(onnx.helper.make_model(graph, **versions), path)
        own = dict(weights=None, shares_weights=False, verified=None)
        files = [entry['files'][0] | describe_file(path) | own]
        about = dict(id=i, flops=(1 + i) * 10**9, metrics=dict(mIoU=40 + i))
        graphs.append(entry | about | dict(files=files))
    manifest = MANIFEST | dict(weights=None, stitches=graphs, largest_flops=2 * 10**9)
    manifest |= dict(input=MANIFEST['input'] | dict(shape=['batch', 3, *size]))
    manifest |= dict(caller=dict(before=before, after=after))
    manifest |= dict(palette=[[200, 0, 0], [0, 200, 0]])
    (folder / 'manifest.json').write_text(json.dumps(manifest))
    return folder
