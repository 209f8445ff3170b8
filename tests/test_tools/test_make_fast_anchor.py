import json

import pytest
import torch
from tiny import TOY

from snnet_mm.apis import init_model

SLOW = TOY.with_name(TOY.name.replace('snnetv2-fast-slow', 'vit-slow'))
OPTIONS = (
    'model.backbone.arch.embed_dims=16',
    'model.decode_head.in_channels=16',
    'test_dataloader.dataset.num_scenes=4',
    'train_dataloader.batch_size=2',
)


@pytest.mark.slow
@pytest.mark.parametrize('size, depth, width', [((), 4, 16), (('--width', 8), 8, 8)])
def test_a_fast_anchor_is_made_of_a_slow_one(run_tool, tmp_path, size, depth, width):
    options = dict(option.split('=') for option in OPTIONS)
    options = {k: int(v) for k, v in options.items()}
    slow = init_model(SLOW, None, cfg_options=options, device='cpu')
    torch.save(dict(state_dict=slow.state_dict()), tmp_path / 'slow.pth')
    command = (
        *('make_fast_anchor.py', SLOW, tmp_path / 'slow.pth', *size, '--iters', 2),
        *('--work-dir', tmp_path / 'fast', '--resume', '--cfg-options', *OPTIONS),
    )
    run_tool(*command)  # nothing to resume yet
    first = torch.load(tmp_path / 'fast' / 'fast.pth')['state_dict']
    run_tool(*command)
    again = torch.load(tmp_path / 'fast' / 'fast.pth')['state_dict']
    assert all(torch.equal(v, again[k]) for k, v in first.items())
    metrics = json.loads((tmp_path / 'fast' / 'fast_anchor.json').read_text())
    assert list(metrics) == ['slow anchor', 'cut', 'trained']
    assert all('mIoU' in found for found in metrics.values())
    options = {} if size else {'model.decode_head.in_channels': 16}
    paths = (tmp_path / 'fast' / f'fast.{end}' for end in ('py', 'pth'))
    model = init_model(*paths, cfg_options=options)
    assert (model.backbone.depth, model.backbone.block_dims[0]) == (depth, width)
    cut = torch.load(tmp_path / 'fast' / 'cut.pth')['state_dict']
    moved = [k for k, v in model.state_dict().items() if not torch.equal(v, cut[k])]
    assert 'backbone.blocks.0.attn.qkv.weight' in moved
