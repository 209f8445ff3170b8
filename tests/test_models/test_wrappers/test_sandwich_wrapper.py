import copy

import pytest
import torch
import torch.nn.functional as F

from snnet_mm.models import Distillation, SandwichWrapper, set_stitch, set_stitches

# 0 and 1 are the anchors of a 3/7 space.
IDS = (5, 0, 8, 1)
ROLES = {'slowest.': 1, 'fastest.': 0, 'stitch0.': 5, 'stitch1.': 8}


def gradients(model):
    return {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize('labels, alpha', [('soft', 0.25), ('hard', 1), (None, 1)])
def test_gradients_are_the_sum_of_those_of_single_stitches(
    build_classifier, batch, labels, alpha
):
    model, images = build_classifier(), torch.randn(4, 3, 32, 32)
    wrapper = SandwichWrapper(copy.deepcopy(model), labels, alpha)
    roles = set_stitches(wrapper, IDS)
    assert {role: s.id for role, s in roles.items()} == ROLES
    losses = wrapper(images, batch['data_samples'], mode='loss')
    sum(v for k, v in losses.items() if 'loss' in k).backward()

    # By hand, each stitch by itself with a backward of its own.
    taught = None
    for role, i in ROLES.items():
        set_stitch(model, i)
        logits = model(images)
        taught = logits.detach() if role == 'slowest.' else taught
        task = F.cross_entropy(logits, batch['data_samples'])
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
    assert any(k.startswith('backbone.stitching_layers') for k in got)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_stitches_that_a_model_cannot_train_at_once(build_classifier):
    plain, wrapper = build_classifier(), SandwichWrapper(build_classifier())
    for model, ids, message in (
        (wrapper, (1,), 'one of the anchors'),
        (wrapper, (5, 8), 'one of the anchors'),
        (wrapper, (5, 5), 'one of the anchors'),
        (plain, (1, 0, 5), "for ToyClassifier.*'SandwichWrapper'"),
        (plain, (999,), 'backbone.stitch_ids'),
    ):
        with pytest.raises(ValueError, match=message):
            set_stitches(model, ids)
    assert set_stitches(plain, (5,)) == {'': plain.backbone.space[5]}
    assert plain.backbone.active_stitch.id == 5
