import copy

import torch
from equality import assert_same
from mmengine.config import Config
from mmengine.model import ExponentialMovingAverage
from mmengine.optim import OptimWrapper

from snnet_mm.costs import cost_table
from snnet_mm.models import ModelWrapper, set_stitch
from snnet_mm.utils import model_config


def test_a_wrapper_is_the_model_in_all_but_its_losses(build_classifier, batch):
    model = build_classifier()
    wrapper = ModelWrapper(copy.deepcopy(model))
    pair = model, ExponentialMovingAverage(wrapper).module
    assert isinstance(pair[1], ModelWrapper)
    for i in (0, 5):
        for m in pair:
            set_stitch(m, i)
        data = model.data_preprocessor(copy.deepcopy(batch), True)
        assert torch.equal(*(m.test_step(batch) for m in pair))
        assert torch.equal(*(m.val_step(batch) for m in pair))
        assert torch.equal(*(m(data['inputs']) for m in pair))
        assert_same(*(m(**data, mode='loss') for m in pair))
    assert cost_table(pair[1], (32, 32)).rows == cost_table(model, (32, 32)).rows
    logged = []
    for m in pair:
        parameters = [p.requires_grad_() for p in m.parameters()]
        optimizer = OptimWrapper(torch.optim.SGD(parameters, 0.1))
        logged += [m.train_step(copy.deepcopy(batch), optimizer) for _ in range(3)]
    assert logged[:3] == logged[3:]
    assert logged[0]['loss'] > logged[2]['loss']
    assert_same(*(dict(m.state_dict()) for m in pair))


def test_configs_of_wrappers():
    inner = dict(type='ToyClassifier', channels=3)
    common = dict(type='ImgDataPreprocessor', mean=[7], std=[3])
    wrapper = ModelWrapper(inner, data_preprocessor=common)
    assert wrapper.data_preprocessor.mean.item() == 7
    wrapped = dict(type='SandwichWrapper', model=dict(type=ModelWrapper, model=inner))
    assert model_config(Config(dict(model=wrapped))) == inner
