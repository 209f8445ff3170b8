"""Tools on a detector whose config imports the package alone, without mmcv's ops."""

import os
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from launching import ROOT
from mmengine.config import Config
from toy import TOY, without_weights

from snnet_mm.inference.init_model import init_model
from snnet_mm.utils.torchvision_ops import EXTENSION

pytestmark = [pytest.mark.ops, pytest.mark.slow]
STITCHED = 'mask-rcnn_snnetv2-fast-slow_1xb8-300_toy-scenes-64x64.py'
PLAIN = 'mask-rcnn_vit-{}_1xb8-300_toy-scenes-64x64.py'
# Runs a tool as where mmcv has no compiled operators.
HIDDEN = """
import runpy, sys
sys.modules[{extension!r}] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
"""
NET, FAST, SLOW = ('{0}/net.py', '{0}/net.pth'), '{0}/fast.py', '{0}/slow.py'
ELASTIC = FAST, '{0}/fast.pth', '--blocks', '0,1', '--num-images', 2, '--device', 'cpu'
PAIR = FAST, '{0}/fast.pth', SLOW, '{0}/slow.pth'
TOOLS = {
    'train.py': (NET[0], '--iters', 1, '--work-dir', '{1}'),
    'test.py': (*NET, '--stitch-id', 0, '--work-dir', '{1}'),
    'export_stitch.py': (*NET, '--stitch-id', 0, '--out', '{1}'),
    'image_demo.py': ('{0}/a.png', *NET, '--stitch-id', 0, '--out-dir', '{1}'),
    'analysis_tools/stitch_table.py': (NET[0], '--out', '{1}'),
    'predict.py': (*NET, '{0}', '--out', '{1}', '--stitch-id', 0),
    'make_elastic.py': (*ELASTIC, '--work-dir', '{1}'),
    'stitch_models.py': (*PAIR, '--out', '{1}/both.py'),
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Configs and weights of a stitched detector and of two plain ones."""
    folder = tmp_path_factory.mktemp('detectors')
    names = dict(net=STITCHED, fast=PLAIN.format('fast'), slow=PLAIN.format('slow'))
    for name, config in names.items():
        cfg = Config.fromfile(TOY / config)
        without_weights(cfg.model)
        for mode in ('train', 'val', 'test'):
            loader = cfg[f'{mode}_dataloader']
            loader.update(num_workers=0, persistent_workers=False)
            dataset = loader.dataset.get('dataset') or loader.dataset
            dataset.num_scenes = 2
        # Scenes have the size of the network, files need not.
        *others, pack = cfg.test_dataloader.dataset.pipeline
        pack.meta_keys = (*pack.meta_keys, 'scale_factor')
        resize = dict(type='Resize', scale=(64, 64), keep_ratio=False)
        cfg.test_dataloader.dataset.pipeline = [*others, resize, pack]
        model = init_model(cfg, None, device='cpu')
        torch.save(model.state_dict(), folder / f'{name}.pth')
        cfg.custom_imports = dict(imports=['snnet_mm'], allow_failed_imports=False)
        cfg.dump(folder / f'{name}.py')
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    cv2.imwrite(str(folder / 'a.png'), image)
    return folder


@pytest.mark.parametrize('tool', TOOLS)
def test_operators_need_no_import(tool, folder, tmp_path):
    out = tmp_path / 'out'
    out.mkdir()
    args = [str(arg).format(folder, out) for arg in TOOLS[tool]]
    code = HIDDEN.format(extension=EXTENSION)
    done = subprocess.run(
        [sys.executable, '-c', code, str(ROOT / 'tools' / tool), *args],
        cwd=ROOT,
        env=os.environ | dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS='1'),
        text=True,
        capture_output=True,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert [*out.iterdir()]
    for noise in ('OneDL', 'FORCE_CUDA', 'constant folding', 'faster_coco'):
        assert noise not in printed
