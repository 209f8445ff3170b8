import pytest
import torch
from torch import nn

from snnet_mm.anchors import TokenState
from snnet_mm.elastic import token_weights
from snnet_mm.elastic.token_weights import RareClassWeights


class Stub(nn.Module):
    """Predicts the classes that the first channel of an image contains."""

    def predict(self, model, image, number):
        assert (model, number, len(image)) == (self, 1, 1)
        if self.one:
            return image[:, :1] - 0.5
        classes = torch.arange(300).view(1, -1, 1, 1)
        return -(classes - image[:, :1]).abs()

    name, one = 'segmentation', False


@pytest.fixture
def model(monkeypatch):
    model, active = Stub(), []
    monkeypatch.setattr(token_weights, 'task_of', lambda model: model)
    monkeypatch.setattr(token_weights, 'set_stitch', lambda m, i: active.append(i))
    yield model
    assert active == [0]


def images(classes):
    return torch.tensor(classes).float()[:, None].expand(-1, 3, -1, -1)


def state(number, height, width, prefix=0):
    return TokenState(torch.zeros(number, prefix + height * width, 5), (height, width))


def test_rare_class_weights_rare_tokens_count_more(model):
    # 12 pixels of class 0, 3 of class 280, 1 of class 7.
    first = [[0, 0, 0, 0], [0, 280, 0, 0]]
    second = [[0, 280, 280, 0], [0, 0, 0, 7]]
    weigh = RareClassWeights(model, [images([first]), images([second])])
    roots = {0: 12**0.5, 280: 3**0.5, 7: 1}
    total = sum(roots.values())  # over 16 pixels, weights average to 1
    of_class = {c: 16 / root / total for c, root in roots.items()}
    for i, classes in enumerate((first, second)):
        wanted = torch.tensor([[of_class[c] for row in classes for c in row]])
        torch.testing.assert_close(weigh(i, state(1, 2, 4)), wanted)
        found = weigh(i, state(1, 2, 4, prefix=2))
        torch.testing.assert_close(found, torch.cat([torch.ones(1, 2), wanted], 1))
        # A map of half the width takes every second pixel.
        wanted = wanted.view(2, 4)[:, 1::2].reshape(1, -1)
        torch.testing.assert_close(weigh(i, state(1, 2, 2)), wanted)


def test_rare_class_weights_one_logit_tells_two_classes(model):
    model.one = True
    weigh = RareClassWeights(model, [images([[[1, 0]], [[0, 0]]])])
    wanted = 4 / (3**0.5 + 1) / torch.tensor([[1, 3**0.5], [3**0.5] * 2])
    torch.testing.assert_close(weigh(0, state(2, 1, 2)), wanted)
