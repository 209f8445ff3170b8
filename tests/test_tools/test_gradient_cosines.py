import json
from itertools import combinations, islice

import pytest
import torch
from config_models import CONFIGS
from mmengine.runner import Runner

from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.utils import load_config

TOY = CONFIGS / 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def test_cosines_are_those_of_gradients_by_hand(run_here, tmp_path):
    torch.manual_seed(0)
    model = init_model(TOY, None, device='cpu')
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    # Stitch 0 is the fast anchor alone, 1 the slow one: they share no weights.
    given = ['default_hooks.stitch_sampling.sampler.ids=[0,1,3]']
    given += ['train_dataloader.batch_size=2']
    out = tmp_path / 'cosines.json'
    options = '--batches', 2, '--device', 'cpu', '--out', out, '--cfg-options', *given
    text = run_here('research/gradient_cosines.py', TOY, tmp_path / 'a.pth', *options)
    found = json.loads(out.read_text())
    assert found['stitches'] == [0, 1, 3]

    cfg, angles = load_config(TOY), []
    cfg.train_dataloader.batch_size = 2
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    model.train()
    for batch, row in zip(islice(loader, 2), found['cosines'], strict=True):
        data, grads = model.data_preprocessor(batch, training=True), []
        for i in found['stitches']:
            set_stitch(model, i)
            model.zero_grad()
            model.parse_losses(model(**data, mode='loss'))[0].backward()
            named = dict(model.backbone.anchors.named_parameters())
            named = {n: p.grad for n, p in named.items() if '.qkv.' in n}
            grads.append({n: g for n, g in named.items() if g is not None})
        for (a, b), cosine in zip(combinations(grads, 2), row, strict=True):
            shared = a.keys() & b.keys()
            if not shared:
                assert cosine is None
                continue
            x, y = (torch.cat([g[n].flatten() for n in shared]) for g in (a, b))
            by_hand = x @ y / x.norm() / y.norm()
            angles.append(by_hand.acos().rad2deg().item())
            assert cosine == pytest.approx(by_hand.item(), abs=1e-5)
    assert found['cosines'][0][0] is None
    assert len(angles) == 4
    assert min(angles) > 1
    mean, above = sum(angles) / 4, sum(angle > 90 for angle in angles) / 4
    summary = f'{mean:.1f} degrees on average, {above:.1%} of 4 angles above 90'
    assert found['summary'] == summary
    assert summary in text
