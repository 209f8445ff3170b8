import copy

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from tiny import TOY

from snnet_mm.anchors import keep_blocks
from snnet_mm.models import FastAnchorWrapper

SLOW = TOY.with_name(TOY.name.replace('snnetv2-fast-slow', 'vit-slow'))


@pytest.fixture
def slow(tmp_path, randomise):
    """A narrow segmentor, its config and its checkpoint."""
    cfg = Config.fromfile(SLOW).model
    cfg.backbone.update(arch=dict(embed_dims=8, depth=4, num_heads=2), img_size=32)
    cfg.decode_head.update(in_channels=8, channels=8)
    cfg.data_preprocessor.size = [32, 32]
    init_default_scope('mmseg')
    model = randomise(MODELS.build(cfg)).eval()
    path = str(tmp_path / 'slow.pth')
    torch.save(dict(state_dict=model.state_dict()), path)
    return model, cfg, path


def build(slow, depth, **kwargs):
    cfg = copy.deepcopy(slow[1])
    cfg.backbone.arch.depth = depth
    return FastAnchorWrapper(cfg, slow[1], slow[2], **kwargs)


def batch():
    labels = torch.randint(0, 4, (1, 32, 32))
    sample = SegDataSample(gt_sem_seg=PixelData(data=labels))
    return torch.randn(2, 3, 32, 32), [sample, copy.deepcopy(sample)]


def test_losses_are_of_tokens_logits_and_labels(slow):
    model, inputs = build(slow, 2, places=[1, 3], logits_weight=0.5).eval(), batch()
    student, (teacher, *_) = model.wrapped, slow
    student.backbone.load_state_dict(keep_blocks(teacher.backbone.state_dict(), [0, 2]))
    losses, task = model(*inputs, mode='loss'), student(*inputs, mode='loss')

    def tokens_of(network, depth):
        state, tokens = network.backbone.embed(inputs[0]), []
        for i in range(depth):
            state = network.backbone.run_block(state, i)
            tokens.append(state.tokens)
        return tokens

    ours, theirs = tokens_of(student, 2), tokens_of(teacher, 4)
    middle, last = (
        (1 - F.cosine_similarity(a, theirs[i], dim=-1)).mean()
        for a, i in zip(ours, (1, 3), strict=True)
    )
    torch.testing.assert_close(losses.pop('loss_tokens'), (middle + last) / 2 + last)
    p, q = (m(inputs[0], mode='tensor').log_softmax(1) for m in (teacher, student))
    divergence = (p.exp() * (p - q)).sum(1).mean()
    torch.testing.assert_close(losses.pop('loss_logits'), 0.5 * divergence)
    for name, value in task.items():
        torch.testing.assert_close(losses[name], value)


def test_only_the_student_is_trained_and_saved(slow):
    model = build(slow, 2, places=[1, 3], labels=False)
    (cfg := copy.deepcopy(slow[1])).backbone.arch.depth = 2
    keys = set(model.state_dict())
    model(batch()[0], mode='loss')['loss_tokens'].backward()
    assert set(model.state_dict()) == keys == set(MODELS.build(cfg).state_dict())
    assert model.backbone.blocks[0].mlp.fc1.weight.grad.any()
    (teacher,) = model._teacher
    assert all(p.grad is None for p in teacher.parameters())
    assert not teacher.training
