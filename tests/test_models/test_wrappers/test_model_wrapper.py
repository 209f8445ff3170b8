import copy

import pytest
import torch
from equality import assert_same
from mmengine.model import ExponentialMovingAverage
from mmengine.optim import OptimWrapper
from mmengine.runner.checkpoint import get_state_dict, load_state_dict

from snnet_mm.costs import cost_table
from snnet_mm.models import ModelWrapper, find_stitched_backbone, set_stitch


@pytest.fixture
def pair(build_classifier):
    """A model, and a wrapper of an equal one."""
    model = build_classifier()
    return model, ModelWrapper(copy.deepcopy(model))


def test_model_wrapper_has_names_and_weights_of_model(pair, randomise):
    """Both ways."""
    model, wrapper = pair
    for names in ('named_parameters', 'named_buffers'):
        a, b = (list(dict(getattr(m, names)())) for m in pair)
        assert a == b
    for state in (wrapper.state_dict(), get_state_dict(wrapper)):
        assert_same(dict(state), dict(model.state_dict()))
        assert state._metadata == model.state_dict()._metadata
    assert len(list(wrapper.parameters())) == len(list(wrapper.wrapped.parameters()))
    load_state_dict(wrapper, get_state_dict(randomise(model)), strict=True)
    assert torch.equal(wrapper.wrapped.head[0].weight, model.head[0].weight)
    randomise(wrapper)
    model.load_state_dict(wrapper.state_dict())
    assert torch.equal(wrapper.wrapped.head[0].weight, model.head[0].weight)
    plain, held = (ExponentialMovingAverage(m) for m in (randomise(model), wrapper))
    held.load_state_dict(plain.state_dict(), strict=True)
    assert_same(dict(held.state_dict()), dict(plain.state_dict()))
    state = wrapper.state_dict()
    state['head.9.weight'] = state.pop('head.0.weight')
    with pytest.raises(RuntimeError, match=r'(?s)head\.0\.weight.*head\.9\.weight'):
        wrapper.load_state_dict(state)


def test_model_wrapper_predicts_and_trains_as_model(pair, batch):
    model, wrapper = pair
    for i in (0, 5):
        for m in pair:
            set_stitch(m, i)
        data = wrapper.data_preprocessor(copy.deepcopy(batch), True)
        assert torch.equal(wrapper.test_step(batch), model.test_step(batch))
        assert torch.equal(wrapper.val_step(batch), model.val_step(batch))
        assert torch.equal(wrapper(data['inputs']), model(data['inputs']))
        assert_same(*(m(**data, mode='loss') for m in pair))
    assert find_stitched_backbone(wrapper).active_stitch.id == 5
    assert cost_table(wrapper, (32, 32)).rows == cost_table(model, (32, 32)).rows
    logged = []
    for model in pair:
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizer = OptimWrapper(torch.optim.SGD(parameters, 0.1))
        logged += [model.train_step(copy.deepcopy(batch), optimizer) for _ in range(3)]
    assert logged[:3] == logged[3:]
    assert logged[0]['loss'] > logged[2]['loss']
    assert_same(*(dict(m.state_dict()) for m in pair))
