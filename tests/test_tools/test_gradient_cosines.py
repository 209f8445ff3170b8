import json
from itertools import combinations

import pytest
import torch
from mmengine.runner import Runner
from tiny import TOY

from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch
from snnet_mm.utils import load_config


def test_angles_are_of_the_named_weights(run_here, tmp_path):
    torch.manual_seed(0)
    model = init_model(TOY, None, device='cpu')
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    ids, out = (2, 3, 1), tmp_path / 'cosines.json'
    options = '--stitch-id', '2,3,1', '--batches', 1, '--weights', 'qkv', '--out', out
    run_here('research/gradient_cosines.py', TOY, tmp_path / 'a.pth', *options)
    batch = next(
        iter(Runner.build_dataloader(load_config(TOY).train_dataloader, seed=0))
    )
    data, grads = model.train().data_preprocessor(batch, training=True), []
    for i in ids:
        set_stitch(model, i)
        model.zero_grad()
        model.parse_losses(model(**data, mode='loss'))[0].backward()
        named = model.backbone.anchors.named_parameters()
        grads.append(
            {n: p.grad.flatten() for n, p in named if 'qkv' in n and p.grad is not None}
        )
    angles = []
    for a, b in combinations(grads, 2):
        both = [torch.cat([g[n] for n in a.keys() & b.keys()]) for g in (a, b)]
        angles.append(torch.cosine_similarity(*both, dim=0).acos().rad2deg().item())
    assert json.loads(out.read_text())['angles'] == pytest.approx(angles, abs=0.1)
    assert min(angles) > 1
