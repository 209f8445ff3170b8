import json
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from narrow_timm import randomise
from tiny import TOY

from snnet_mm.elastic import fast_anchor
from snnet_mm.elastic.images import ImageBatches
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import ElasticBackbone, fit_in_turn
from snnet_mm.utils import load_config, load_weights_only

SLOW = TOY.with_name(TOY.name.replace('snnetv2-fast-slow', 'vit-slow'))
SMALL = {
    'model.backbone.arch.embed_dims': 16,
    'model.decode_head.in_channels': 16,
    'train_dataloader.dataset.num_scenes': 8,
    'test_dataloader.dataset.num_scenes': 4,
    'train_dataloader.batch_size': 2,
}
OPTIONS = [f'{key}={value}' for key, value in SMALL.items()]


@pytest.fixture
def fast_backbone(tmp_path):
    """The config that is written for the backbone, of a slow one with settings."""

    def write(size=None, **settings):
        settings = {f'model.backbone.{k}': v for k, v in settings.items()}
        cfg = load_config(SLOW, SMALL | settings)
        args = dict(blocks=None, every=2) | (size or {})
        files = dict(checkpoint=None, work_dir=tmp_path)
        args = SimpleNamespace(**args, **files)
        found, places, _ = fast_anchor._chain(cfg, args)
        return fast_anchor._write_config(cfg, found, places, args).model.backbone

    return write


def test_settings_that_number_blocks_follow_those_that_are_kept(fast_backbone):
    found = fast_backbone(out_indices=(-1, 2), frozen_stages=4)
    # Of blocks 0, 2, 4 and 6, the first stands for 1, the second for 2 and 3.
    assert found.out_indices == (3, 1)
    assert found.frozen_stages == -1
    windows = dict(cls_token=False, window_size=4)
    found = fast_backbone(**windows, global_blocks=(1, 4))
    assert found.global_blocks == (2,)
    with pytest.raises(ValueError, match=r'blocks=\[0, 2, 4, 6\]; .*one of \(1, 3\)'):
        fast_backbone(**windows, global_blocks=(1, 3))
    chosen = fast_backbone(dict(blocks=[1, 3, 7]), **windows, global_blocks=(1, 3))
    assert chosen.global_blocks == (0, 1)


@pytest.mark.parametrize('final_norm', [False, True])
@pytest.mark.parametrize('blocks', [[0, 2], [1, 3]])
def test_the_network_to_begin_with_is_the_chain_of_an_elastic_one(
    tmp_path, blocks, final_norm
):
    options = {'model.backbone.arch.depth': 4, 'model.backbone.final_norm': final_norm}
    cfg = load_config(SLOW, SMALL | options)
    path = tmp_path / 'slow.pth'
    slow = init_model(cfg, None, device='cpu')
    randomise(slow)
    torch.save(dict(state_dict=slow.state_dict()), path)
    files = dict(checkpoint=str(path), work_dir=tmp_path)
    options = SimpleNamespace(blocks=blocks, every=2, **files)
    settings, places, weights = fast_anchor._chain(cfg, options)
    first = blocks[0] == 0
    assert (settings['gaps'], places) == (((0, 1), [1, 3]) if first else ((0,), [2, 3]))
    fast = init_model(fast_anchor._write_config(cfg, settings, places, options), None)
    fast.load_state_dict(weights)

    layer = dict(type='StitchingLayer')
    chain = ElasticBackbone([slow.backbone], [blocks], layer)
    batches = ImageBatches(cfg, slow, fast_anchor.NUM_IMAGES)
    fit_in_turn(chain, batches)
    chain.set_stitch(1)
    images = next(iter(batches))
    with torch.no_grad():
        found, expected = fast.backbone(images)[-1], chain.eval()(images)[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found - slow.backbone.eval()(images)[-1]).abs().max() > 0.01
    # A stitched config that forgets the maps is told so.
    torch.save(dict(state_dict=weights), path)
    forgotten = fast.cfg.model.backbone
    forgotten.update(gaps=(), init_cfg=dict(forgotten.init_cfg, checkpoint=str(path)))
    with pytest.raises(ValueError, match=r'it has blocks\.0\.gap\.weight'):
        MODELS.build(forgotten).init_weights()


def test_the_written_config_is_that_of_the_trained_model(fast_backbone, tmp_path):
    """With the options of the call, whatever the slow anchor's config is named."""
    backbone = fast_backbone(out_indices=(-1,))
    written, plain = load_config(tmp_path / 'fast.py'), load_config(SLOW)
    assert written.model.backbone == backbone
    assert backbone.arch == dict(embed_dims=16, depth=4, num_heads=4, mlp_ratio=4)
    assert backbone.init_cfg.checkpoint == str(tmp_path / 'fast.pth')
    assert written.model.decode_head == dict(plain.model.decode_head, in_channels=16)
    assert written.train_dataloader.batch_size == 2
    assert not [*tmp_path.glob('.fast*')]


def test_a_failed_write_leaves_the_old_config(fast_backbone, tmp_path, monkeypatch):
    def fails(_, path):
        path.write_text('half of ')
        raise KeyboardInterrupt

    fast_backbone()
    before = (tmp_path / 'fast.py').read_text()
    monkeypatch.setattr(Config, 'dump', fails)
    with pytest.raises(KeyboardInterrupt):
        fast_backbone(out_indices=(2,))
    assert (tmp_path / 'fast.py').read_text() == before


def test_a_training_of_other_blocks_is_not_resumed(tmp_path):
    """Else the new config would come with the network of the old blocks."""
    path = tmp_path / 'slow.pth'
    path.write_bytes(b'slow')
    folder = tmp_path / 'training'
    last = folder / 'last_checkpoint'

    def check(resume=True, blocks=(0, 2)):
        options = dict(resume=resume, blocks=[*blocks])
        options |= dict(checkpoint=str(path), work_dir=tmp_path)
        fast_anchor._check_resumed(SimpleNamespace(**options))

    check()  # nothing to resume yet
    last.touch()
    check()
    with pytest.raises(ValueError, match=r'is \{.*\[0, 2\].* this \{.*: --resume'):
        check(blocks=(0, 1))
    path.write_bytes(b'other')
    with pytest.raises(ValueError, match='checkpoint'):
        check()
    assert last.exists()
    check(resume=False)  # anew: what was trained before is not resumed later
    assert not last.exists()
    last.touch()
    check()
    (folder / 'made_of.json').unlink()
    with pytest.raises(ValueError, match='of an older version'):
        check()


def test_an_average_of_the_config_does_not_discard_the_training(tmp_path):
    cfg = load_config(SLOW, SMALL)
    cfg.custom_hooks = [dict(type='EMAHook', momentum=1e-4)]
    slow, first = tmp_path / 'slow.pth', tmp_path / 'chain.pth'
    weights = init_model(cfg, None, device='cpu').state_dict()
    for path in (slow, first):
        torch.save(dict(state_dict=weights), path)
    args = dict(blocks=None, every=2, iters=3, labels=False, resume=False)
    args |= dict(checkpoint=str(slow), work_dir=tmp_path)
    places = range(cfg.model.backbone.arch.depth)
    training = fast_anchor._training_config(
        cfg, cfg, [*places], SimpleNamespace(**args)
    )
    training.val_cfg = training.val_dataloader = training.val_evaluator = None
    fast_anchor._train(training, tmp_path / 'fast.pth', False)
    written = torch.load(tmp_path / 'fast.pth')['state_dict']
    kept = load_weights_only(tmp_path / 'training' / 'iter_3.pth')
    assert 'ema_state_dict' not in kept
    assert written.keys() == weights.keys()
    assert all(torch.equal(v, kept['state_dict'][k]) for k, v in written.items())


@pytest.mark.slow
def test_a_fast_anchor_is_made_of_a_slow_one(run_here, tmp_path):
    slow = init_model(SLOW, None, cfg_options=SMALL, device='cpu')
    torch.save(dict(state_dict=slow.state_dict()), tmp_path / 'slow.pth')
    command = (
        *('make_fast_anchor.py', SLOW, tmp_path / 'slow.pth', '--iters', 2),
        *('--work-dir', tmp_path / 'fast', '--resume', '--cfg-options', *OPTIONS),
    )
    run_here(*command)  # nothing to resume yet
    first = torch.load(tmp_path / 'fast' / 'fast.pth')['state_dict']
    run_here(*command)
    again = torch.load(tmp_path / 'fast' / 'fast.pth')['state_dict']
    assert all(torch.equal(v, again[k]) for k, v in first.items())
    metrics = json.loads((tmp_path / 'fast' / 'fast_anchor.json').read_text())
    assert list(metrics) == ['slow anchor', 'chain', 'trained']
    assert all('mIoU' in found for found in metrics.values())
    paths = (tmp_path / 'fast' / f'fast.{end}' for end in ('py', 'pth'))
    model = init_model(*paths)
    assert (model.backbone.depth, model.backbone.block_dims[0]) == (4, 16)
    chain = torch.load(tmp_path / 'fast' / 'chain.pth')['state_dict']
    moved = [k for k, v in model.state_dict().items() if not torch.equal(v, chain[k])]
    assert 'backbone.blocks.0.attn.qkv.weight' in moved
