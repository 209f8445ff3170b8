import json

import pytest
import torch
from mmengine.runner import Runner
from tiny import TOY

from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch
from snnet_mm.utils import load_config


def test_cosines_are_those_of_two_gradients_by_hand(run_here, tmp_path):
    torch.manual_seed(0)
    model = init_model(TOY, None, device='cpu')
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    options = (
        '--stitch-id',
        '0,2,1',
        '--batches',
        1,
        '--out',
        tmp_path / 'cosines.json',
    )
    run_here('research/gradient_cosines.py', TOY, tmp_path / 'a.pth', *options)
    found = json.loads((tmp_path / 'cosines.json').read_text())['mean']
    cfg = load_config(TOY)
    batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    grads = []
    for i in (2, 1):
        set_stitch(model, i)
        model.train().zero_grad()
        data = model.data_preprocessor(batch, training=True)
        model.parse_losses(model(**data, mode='loss'))[0].backward()
        grads.append([p.grad for p in model.backbone.anchors.parameters()])
    both = [(a, b) for a, b in zip(*grads, strict=True) if None not in (a, b)]
    a, b = (torch.cat([g.flatten() for g in of]) for of in zip(*both, strict=True))
    assert found[1][2] == pytest.approx((a @ b / a.norm() / b.norm()).item(), abs=1e-3)
    assert found[1][2] == found[2][1] != 1
    assert [found[i][i] for i in range(3)] == [1, 1, 1]
    assert found[0][2] is None  # anchors share nothing
