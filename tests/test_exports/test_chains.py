"""Chains of an elastic network as models of their own, and in bundles."""

import pytest
import torch
from manifests import path_of
from mmengine.config import Config
from mmengine.registry import init_default_scope
from old_torch import writes_onnx
from small import write_trained
from torch.testing import assert_close

from snnet_mm.elastic import elastic_config, elastic_model
from snnet_mm.exports import StitchExporter
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.utils import load_weights_only

# Narrow and skipped branches of four blocks, each of two heads and 128 neurons.
CHAINS = ['0:0/0 1:1/96 2:0/0 3:0/128', '0:0/0 1:1/64 2:0/0 3:0/96']
CHAINS.append(f'0.75x: {CHAINS[1]}')


@pytest.fixture(scope='module')
def elastic(tmp_path_factory):
    """The config, a trained network, and its elastic version with random chains."""
    torch.manual_seed(0)
    files = write_trained('seg', tmp_path_factory.mktemp('trained'))
    cfg = Config.fromfile(files[0])
    network = init_model(cfg, files[1], device='cpu').eval()
    model = elastic_model(network, CHAINS)
    torch.manual_seed(0)
    backbone = find_stitched_backbone(model)
    for order in backbone.unit_orders.values():
        order.index.copy_(torch.randperm(len(order.index)))
    for parameter in backbone.stitching_layers.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    backbone.stitching_initialized.fill_(True)
    model.dataset_meta = network.dataset_meta
    return elastic_config(cfg, network, CHAINS, (64, 64)), network, model


@pytest.fixture(scope='module')
def exporter(elastic, tmp_path_factory):
    cfg, _, model = elastic
    init_default_scope(cfg.default_scope)
    return StitchExporter(cfg, model, tmp_path_factory.mktemp('out'))


@torch.no_grad()
def test_chain_is_a_model_of_its_own(elastic, exporter, logits, tmp_path):
    _, network, model = elastic
    images = torch.randn(2, 3, 64, 64)
    exporter.out_dir = tmp_path
    for i in (0, 1, 3, 2):
        exporter.export_stitch(i, ['mm'])
        path = tmp_path / f'stitch_{i}.pth'
        single = init_model(path.with_suffix('.py'), path, device='cpu')
        set_stitch(model, i)
        found = logits(single, images)
        assert_close(found, logits(model, images), rtol=1e-5, atol=1e-5)
        assert torch.equal(found, logits(network, images)) is (i == 0)
        held = sum(p.numel() for p in single.parameters())
        assert held == exporter.costs[i].params
    # One of two heads, and 96 of 128 neurons.
    anchor = single.backbone.net
    shapes = [
        len(anchor.get_parameter(f'blocks.{name}.weight'))
        for name in ('1.attn.qkv', '3.mlp.fc1')
    ]
    assert shapes == [3 * anchor.block_dims[0] // 2, 96]


@pytest.mark.slow
def test_exported_chain_is_trained_and_tested(exporter, run_here, tmp_path):
    exporter.out_dir = tmp_path
    exporter.export_stitch(2, ['mm'])
    files = tmp_path / 'stitch_2.py', tmp_path / 'stitch_2.pth'
    more = ('--work-dir', tmp_path / 'run', '--cfg-options', f'load_from={files[1]}')
    run_here('train.py', files[0], *more, 'train_cfg.max_iters=2')
    trained = load_weights_only(tmp_path / 'run/iter_2.pth')['state_dict']
    before = load_weights_only(files[1])['state_dict']
    assert trained.keys() == before.keys()
    for name, value in before.items():
        if name.endswith('weight') and 'running' not in name:
            assert not torch.equal(trained[name], value), name
    printed = run_here('test.py', files[0], tmp_path / 'run/iter_2.pth')
    assert 'mIoU' in printed


@pytest.mark.slow
@writes_onnx
def test_bundle_holds_each_narrow_layer_once(exporter, tmp_path):
    onnx = pytest.importorskip('onnx')
    pytest.importorskip('onnxruntime')
    exporter.out_dir = tmp_path
    manifest = exporter.export_bundle((1, 2, 3), ['onnx'], ['fp32', 'fp16', 'int8'])
    for stitch in manifest['stitches']:
        fp32, fp16, int8 = (file['max_difference'] for file in stitch['files'])
        assert fp32 < 1e-4 < fp16 < int8 < 6
        assert fp16 < 0.1
    assert [s['segments'] for s in manifest['stitches']] == [[], [], []]
    branches = [[n for _, n, _ in s['branches']] for s in manifest['stitches']]
    assert branches[0] == [0, 0, 1, 96, 0, 0, 0, 128]
    assert branches[1] == branches[2] == [0, 0, 1, 64, 0, 0, 0, 96]
    flops = [stitch['flops'] for stitch in manifest['stitches']]
    assert flops[1] / flops[2] == pytest.approx((1 / 0.75) ** 2, rel=0.1)
    assert manifest['stitches'][1]['branches'][3] == [1, 64, 128]
    name = 'backbone.net.blocks.1.mlp.fc1.weight'
    keys = dict(fp32=name, fp16=f'{name}.fp16', int8=f'{name}_quantized')
    for precision, key in keys.items():
        places = []
        for i in (1, 2):
            path = path_of(tmp_path, f'stitch_{i}_64x64_{precision}.onnx')
            tensors = onnx.load(path, load_external_data=False).graph.initializer
            (found,) = (t for t in tensors if t.name.partition('[')[0] == key)
            about = {entry.key: int(entry.value) for entry in found.external_data[1:3]}
            places.append((about['offset'], about['length']))
        (begin, wide), (same, narrow) = places
        assert same == begin
        assert narrow * 96 == wide * 64
    # Percent are of the network, as for the model, though the bundle lacks it.
    assert manifest['largest_flops'] == exporter.costs[0].flops
