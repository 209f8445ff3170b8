import copy

import pytest
import torch
import torch.nn.functional as F

from snnet_mm.models import Distillation, SandwichWrapper, set_stitch, set_stitches

# 0 and 1 are the anchors of a 3/7 space.
IDS = (5, 0, 8, 1)
ROLES = {'slowest.': 1, 'fastest.': 0, 'stitch0.': 5, 'stitch1.': 8}


@pytest.fixture
def data(batch):
    return dict(inputs=torch.randn(4, 3, 32, 32), data_samples=batch['data_samples'])


def total(losses):
    return sum(v for k, v in losses.items() if 'loss' in k)


def gradients(model):
    return {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize('labels, alpha', [('soft', 0.25), ('hard', 1), (None, 1)])
def test_sandwich_wrapper_gradients_are_sums_over_stitches(
    build_classifier, data, labels, alpha
):
    model = build_classifier()
    wrapper = SandwichWrapper(copy.deepcopy(model), labels, alpha)
    roles = set_stitches(wrapper, IDS)
    assert {role: s.id for role, s in roles.items()} == ROLES
    losses = wrapper(**data, mode='loss')
    total(losses).backward()

    # By hand, each stitch by itself with a backward of its own.
    taught = None
    for role, i in ROLES.items():
        set_stitch(model, i)
        logits = model(data['inputs'])
        taught = logits.detach() if role == 'slowest.' else taught
        task = F.cross_entropy(logits, data['data_samples'])
        if role == 'slowest.' or labels is None:
            assert f'{role}loss_distill' not in losses
        else:
            distilled = Distillation(labels).loss(logits, taught)
            torch.testing.assert_close(losses[f'{role}loss_distill'], alpha * distilled)
            task = (1 - alpha) * task
            (alpha * distilled).backward(retain_graph=True)
        torch.testing.assert_close(losses[f'{role}loss_cls'], task)
        task.backward()
    wanted, got = gradients(model), gradients(wrapper)
    assert got.keys() == wanted.keys()
    assert any(k.startswith('backbone.stitching_layers') for k in got)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_set_stitches_what_is_no_sandwich_is_refused(build_classifier):
    model = build_classifier()
    wrapper = SandwichWrapper(model)
    for ids in ((1,), (5,), (5, 8), (5, 5)):
        with pytest.raises(ValueError, match=r'stitch_sampling\.sampler'):
            set_stitches(wrapper, ids)
    # Several need a wrapper that takes them.
    with pytest.raises(ValueError, match="'SandwichWrapper'"):
        set_stitches(model, (1, 0, 5))
    with pytest.raises(ValueError, match='id 999 '):
        set_stitches(model, (999,))
    assert set_stitches(model, (5,)) == {'': model.backbone.space[5]}
    assert model.backbone.active_stitch.id == 5
