"""Costs of whole models: their heads and necks, and what counting must not touch."""

import re

import pytest
import torch
from costs_by_hand import DEPTHS, LAYERS, NUM_PATCHES, SIZE, cost_by_hand
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, ExponentialMovingAverage, ImgDataPreprocessor
from tables import counts
from torch import nn
from torch.distributed import ProcessGroup

from snnet_mm.costs import cost_table, measure_latency, preprocessed_size
from snnet_mm.models import find_stitched_backbone, set_stitch


class Model(BaseModel):
    """A backbone, perhaps a neck, and a head that prediction calls as in mm models."""

    def __init__(self, backbone, head, neck=None, **kwargs):
        super().__init__(**kwargs)
        self.backbone, self.head, self.neck = backbone, head, neck or nn.Identity()

    def extract_feat(self, images):
        return self.neck(self.backbone(images)[0])

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return self.head.forward(self.extract_feat(inputs))


class Queries(nn.Module):
    """A head with a buffer, a parameter that no module holds, and unused ones."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(4, 4)
        self.queries = nn.Parameter(torch.zeros(5, 12))
        self.register_buffer('scale', torch.ones(12, 1), persistent=False)

    def forward(self, x):
        return self.queries @ (x.flatten(2) * self.scale)


class DeformConv2d(nn.Conv2d):
    """Stands for mmcv's by its name; FLOPs are those of its matrix product."""

    def __init__(self):
        super().__init__(12, 4, 3, padding=1, groups=2, bias=False)

    def forward(self, x, offsets=None):
        raise AssertionError('counted without offsets')


class WithTruth(nn.Conv2d):
    """A head that needs more than images: it is left out."""

    def __init__(self):
        super().__init__(12, 3, 1)

    def forward(self, x, truth=None):
        return super().forward(x)[truth.labels]


@pytest.fixture
def warnings(monkeypatch):
    said, logger = [], MMLogger.get_current_instance()
    monkeypatch.setattr(logger, 'handle', lambda record: said.append(record.msg))
    return lambda: [words for words in said if words.startswith('Costs of')]


@pytest.mark.parametrize(
    ('head', 'head_macs', 'head_params', 'warning'),
    [
        (Queries, NUM_PATCHES * 12 * 5, 12 * 5, None),
        (DeformConv2d, NUM_PATCHES * 4 * 6 * 9, 4 * 6 * 9, None),
        (WithTruth, 0, 0, r"AttributeError: .*'labels'"),
    ],
)
def test_heads_cost_what_they_use(
    build_snnet, warnings, head, head_macs, head_params, warning
):
    net = build_snnet(DEPTHS, stitching_layer=LAYERS[0])
    model = Model(net, head(), nn.Conv2d(12, 12, 1)).train()
    table = cost_table(model, SIZE)
    assert table.scope == ('backbone and neck alone' if warning else None)
    for words in warnings():
        assert re.search(f'Costs of Model are those of {table.scope}.*{warning}', words)
    assert len(warnings()) == (warning is not None)
    for stitch in net.space:
        macs, params = cost_by_hand(stitch, [6])
        macs, params = macs + NUM_PATCHES * 12 * 12, params + 13 * 12
        assert counts(table[stitch.id]) == (macs + head_macs, params + head_params)
    if warning:  # what is timed is what is counted
        assert measure_latency(model, SIZE, rounds=1).by_stitch.keys() == {*table}


class Chosen(nn.Conv2d):
    """A head that convolves at the places which its images choose."""

    def forward(self, x):
        places = x[0].sum(0).gt(0).nonzero()
        chosen = x[0, :, places[:, 0], places[:, 1]]
        return super().forward(chosen[None, ..., None])


def test_heads_work_by_content_of_one_prediction(build_snnet):
    net = build_snnet(DEPTHS, stitching_layer=LAYERS[0])
    model = Model(net, Chosen(12, 3, 1))
    table = cost_table(model, SIZE)
    assert table.scope is None
    assert table == cost_table(model, SIZE)
    chosen = set()
    for stitch in net.space:
        macs, params = cost_by_hand(stitch, [6])
        assert table[stitch.id].params == params + 13 * 3
        chosen.add((table[stitch.id].flops - macs) / (12 * 3))
    (number,) = chosen
    assert number in range(1, NUM_PATCHES)


def test_preprocessed_size_is_that_of_data_preprocessor(build_snnet):
    sized = ImgDataPreprocessor()
    sized.size = [24, 40]
    model = Model(build_snnet(), nn.Identity(), data_preprocessor=sized)
    assert preprocessed_size(model) == (24, 40)
    assert cost_table(model) == cost_table(model, (24, 40))


@pytest.mark.parametrize(
    ('build', 'size', 'words'),
    [
        (lambda net: net, None, 'model.data_preprocessor.size'),
        (lambda net: Model(net, nn.Identity()), None, 'model.data_preprocessor.size'),
        (lambda net: nn.Conv2d(3, 3, 1), SIZE, 'Conv2d.*model.backbone'),
    ],
)
def test_cost_table_of_uncountable_model_raises(
    build_snnet, warnings, build, size, words
):
    with pytest.raises(ValueError, match=words):
        cost_table(build(build_snnet()), size)
    assert not warnings()


class SharedHead(BaseModel):
    """A model whose head is held under two names, and a tensor of it as well."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.grid = backbone, None
        self.first = nn.Conv2d(12, 12, 1)
        self.second = self.first
        self.third = nn.Conv2d(12, 12, 1)
        self.third.weight = self.first.weight
        self.norms = nn.ModuleList([nn.BatchNorm2d(12)] * 2)
        # What cannot be copied: as MMSyncBN has it, and of a step of training.
        self.group, self.seen = ProcessGroup(0, 1), []

    def forward(self, inputs, data_samples=None, mode='tensor'):
        (x,) = self.backbone(inputs)
        self.seen.append(x)
        if self.grid is None:
            self.grid = torch.ones_like(x[:1, :1])
            self.register_buffer('offset', torch.zeros_like(self.grid))
        x = x * self.grid + self.offset
        return self.third(self.norms[1](self.second(self.norms[0](self.first(x)))))


@pytest.mark.parametrize('ema', [False, True])
def test_cost_table_leaves_model_alone(build_snnet, ema):
    model = SharedHead(build_snnet(DEPTHS, out_indices=(6,))).train()
    if ema:
        del model.group
        model = ExponentialMovingAverage(model)
    else:
        model.seen.append(model.first(torch.ones(1, 12, 1, 1)))

    def held():
        named = (model.named_parameters, model.named_buffers)
        return {k: v for tensors in named for k, v in tensors(remove_duplicate=False)}

    def settings():
        return [
            (m.training, len(m._forward_hooks), vars(m).keys()) for m in model.modules()
        ]

    set_stitch(model, 5)
    find_stitched_backbone(model).anchors[0].eval()
    before, copies = held(), {k: v.clone() for k, v in held().items()}
    settings_before = settings()
    state = torch.get_rng_state()
    shared, after = cost_table(model, SIZE), held()
    assert torch.get_rng_state().equal(state)
    assert settings() == settings_before
    assert find_stitched_backbone(model).active_stitch.id == 5
    assert all(p.grad is None for p in model.parameters())
    assert after.keys() == before.keys()
    assert all(after[k] is before[k] for k in after)
    assert all(torch.equal(after[k], copies[k]) for k in after)
    model(torch.randn(2, 3, *SIZE))  # with what it makes at its first forward
    backbone = cost_table(find_stitched_backbone(model), SIZE)
    # Three convolutions run, with one weight and two biases; one norm, run twice.
    macs, params = 3 * 12 * 12 * NUM_PATCHES, 12 * 12 + 2 * 12 + 2 * 12
    for i in shared:
        assert shared[i].flops - backbone[i].flops == macs
        assert shared[i].params - backbone[i].params == params


class OtherMaps(nn.Module):
    """A head that counts or indexes its maps, and expects others."""

    def __init__(self, checks):
        super().__init__()
        self.checks = checks

    def forward(self, x):
        assert not self.checks, 'expected 4 maps'
        return [x][3]


@pytest.mark.parametrize(
    ('head', 'words'),
    [
        (nn.Conv2d(40, 3, 1), 'RuntimeError: .* to have 40 channels, but got 12'),
        (OtherMaps(True), 'AssertionError: expected 4 maps'),
        (OtherMaps(False), 'IndexError: list index'),
    ],
)
def test_heads_of_other_maps_raise_their_own_error(build_snnet, head, words):
    model = Model(build_snnet(DEPTHS, stitching_layer=LAYERS[0]), head)
    with pytest.raises(ValueError, match=f'in_channels and in_index.*: {words}'):
        cost_table(model, SIZE)
