import gc
import json
import random
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import config
from mmengine.logging import MessageHub, MMLogger
from mmengine.registry import MODELS, DefaultScope
from mmengine.visualization import Visualizer
from yapf.yapflib import yapf_api

import snnet_mm  # noqa: F401
from snnet_mm.models import SNNetv1, SNNetv2
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import torchvision_ops

DATA = Path(__file__).parent / 'data'

# Detector configs do this too, but tests import mmdet before they read a config.
torchvision_ops.install()

# The models of these tests are too small to benefit from threads.
torch.set_num_threads(1)

# The first backward pass counts devices. If it finds fake ones (test_cuda_devices.py),
# autograd starts threads for them and refuses to run in a fork.
torch.ones((), requires_grad=True).backward()


# These fork the process and run first: threads of other tests do not survive a fork.
FORKING = (
    'test_full_disk.py', 'test_kills.py', 'test_ranks.py',
    'test_training_on_ranks.py', 'test_distributed.py',
)  # fmt: skip


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FORKING)


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_of_other_runs():
    """Forget what mmengine keeps of runs, which it names by the second."""
    yield
    for kind in (DefaultScope, MessageHub, MMLogger, Visualizer):
        kind._instance_dict.clear()


@pytest.fixture(autouse=True, scope='module')
def imports_are_no_garbage():
    """Hide what was imported from the collections that each data set of mm asks for.

    They would be more than half of the time of all tests.
    """
    gc.freeze()


@pytest.fixture(autouse=True, scope='session')
def quick_yapf():
    """Skip the formatting of configs, six times a run, which takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (yapf_api, config):  # mmengine 0.10.7 imports its name
            code = 'FormatCode', lambda text, **style: (text, True)
            patch.setattr(module, *code, raising=False)
        yield


@torch.no_grad()
def _randomise(model):
    """Draw weights large enough for every part of a network to affect its output."""
    for parameter in model.parameters():
        parameter.normal_(std=0.3)
    return model


randomise = pytest.fixture(lambda: _randomise)


@pytest.fixture
def build_vit():
    """Builds a small plain ViT with random weights."""

    def build(embed_dims=8, depth=3, num_heads=2, **kwargs):
        arch = dict(embed_dims=embed_dims, depth=depth, num_heads=num_heads)
        kwargs = dict(img_size=32, patch_size=8, arch=arch) | kwargs
        return _randomise(MODELS.build(dict(type='PlainViT', **kwargs)))

    return build


@pytest.fixture
def build_snnet(build_vit):
    """Builds a small SNNetv2 with random weights: widths 8/12, images 32x32."""

    def build(depths=(3, 7), widths=(8, 12), anchor=None, stitching_layer=None, **kw):
        anchors = [
            build_vit(width, depth, **(anchor or {}))
            for width, depth in zip(widths, depths, strict=True)
        ]
        layer = stitching_layer or dict(type='LoRAStitchingLayer', rank=2)
        return _randomise(SNNetv2(anchors, layer, **kw))

    return build


@pytest.fixture(scope='session')
def data(tmp_path_factory):
    """Generated images in the layouts of ADE20K, NYUv2, COCO and ImageNet."""
    pytest.importorskip('mmdet.datasets')
    from narrowing import write_data

    write_data(root := tmp_path_factory.mktemp('data'))
    return root


@dataclass
class Golden:
    """Tensors from the authors' released code; see tests/data/README.md."""

    meta: dict
    tensors: dict

    @property
    def is_seg(self):
        """Whether it is the backbone of a segmentor, not of a depth model."""
        return not self.meta.get('name', '').startswith('depth')

    def part(self, prefix):
        """Return the tensors under a prefix, with the prefix removed."""
        names = [k for k in self.tensors if k.startswith(prefix)]
        return {k.removeprefix(prefix): self.tensors[k] for k in names}

    def output(self, key):
        """Return a map, or a map and its cls token."""
        if key in self.tensors:
            return self.tensors[key]
        return self.tensors[f'{key}.map'], self.tensors[f'{key}.cls']

    def build(self):
        """Build our version of the backbone, with random weights."""
        m = self.meta
        depth = dict(mlp_shortcut=True, norm_eps=1e-5, pos_embed_antialias=False)
        common = dict(rel_pos_bias=True) if self.is_seg else depth
        common |= dict(type='PlainViT', img_size=m['img'], patch_size=m['patch'])
        sizes = zip(m['embed_dims'], m['depths'], m['num_heads'], strict=True)
        anchors = [
            dict(arch=dict(embed_dims=width, depth=depth, num_heads=heads), **common)
            for width, depth, heads in sizes
        ]
        out = dict(out_indices=m['out_indices'][1])
        if m.get('type') == 'SNNetv1':
            return SNNetv1(anchors, **out).eval()
        layer = dict(type='LoRAStitchingLayer', rank=m['lora_r'])
        return SNNetv2(anchors, layer, with_cls=not self.is_seg, **out).eval()


@cache
def _load_golden(name):
    with np.load(DATA / f'{name}.npz') as file:
        meta = json.loads(str(file['meta']))
        tensors = {k: torch.from_numpy(file[k]) for k in file.files if k != 'meta'}
    return Golden(meta, tensors)


def _golden(*names):
    load = lambda request: _load_golden(request.param)  # noqa: E731
    return pytest.fixture(load, scope='session', params=names)


golden = _golden('seg_v2_tiny', 'seg_v2_s_l')
golden_v2 = _golden('seg_v2_tiny', 'seg_v2_s_l', 'depth_v2_tiny')
golden_v1 = _golden('seg_v1_tiny', 'seg_v1_s_l')
tiny_golden = _golden('seg_v2_tiny')
cls_golden = _golden('cls_v2_tiny')
cls_v1_golden = _golden(
    *(f'cls_v1_{name}' for name in ('deit', 'swin', 'resnet', 'resnet_swin', 'levit'))
)


def _published(read, name):
    """Return a fixture of the authors' figures by stitch id."""
    return pytest.fixture(lambda: read(DATA / f'{name}.json'), scope='session')


def _figures(path):
    results = StitchTable.read(path)
    return {r.id: dict(flops=r.flops, **r.metrics) for r in results.rows}


def _stitches(path, key=None):
    stitches = json.loads(path.read_text())['stitches']
    return {int(i): stitch[key] if key else stitch for i, stitch in stitches.items()}


published = _published(_figures, 'ade20k_setr_deit3_s_l')
published_cls = _published(_figures, 'imagenet_deit3_s_l')
# FLOPs alone, on NYUv2; routes of the 71 SN-Netv1 stitches of DeiT-Ti/S/B.
published_depth = _published(
    partial(_stitches, key='flops'), 'nyuv2_dpt_deit3_s_l_flops'
)
published_v1 = _published(_stitches, 'imagenet_v1_deit_ti_s_b')
