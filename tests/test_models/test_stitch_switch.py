import copy
import importlib
import pickle
import re
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from mmengine.model import BaseTTAModel, ExponentialMovingAverage
from mmengine.registry import MODELS, init_default_scope
from package_calls import predicted
from tiny import tiny_config
from torch import nn
from toy import small_toy

from snnet_mm.evaluation.per_stitch_bn import PerStitchBN, batch_norms
from snnet_mm.models import (
    find_stitched_backbone,
    set_input_size,
    set_stitch,
)


class Listener(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.heard, self.net = [], (net,)

    def on_stitch(self, stitch):
        assert self.net[0].active_stitch is stitch  # switched by now
        self.heard.append(stitch)


def test_every_listener_in_a_wrapped_model_hears_of_the_stitch_once(build_snnet):
    net = build_snnet()
    deep, shallow = Listener(net), Listener(net)
    parts = net, nn.Sequential(nn.Identity(), deep), shallow, shallow
    # Under another name, as in DDP and test-time augmentation.
    model = nn.ModuleDict(dict(module=nn.Sequential(*parts)))
    assert find_stitched_backbone(model) is net
    set_stitch(model, 8)
    assert net.active_stitch is net.space[8]
    set_stitch(model, 0)
    assert deep.heard == shallow.heard == [net.space[8], net.space[0]]


@pytest.mark.parametrize('wrong', [4, True, [1], 1.5, 'x'])
def test_nobody_hears_of_a_stitch_that_is_not_there(build_snnet, wrong):
    net = build_snnet()
    listener = Listener(net)
    words = f'stitch id {re.escape(repr(wrong))} is not in .* allowed are 0-3, 5-8'
    for call in (lambda i: set_stitch(nn.Sequential(net, listener), i), net.set_stitch):
        with pytest.raises(ValueError, match=words):
            call(wrong)
    assert listener.heard == []
    assert net.active_stitch.id == 1


@torch.no_grad()
def test_another_input_size_equals_images_of_that_size(build_snnet):
    net, images = build_snnet().eval(), torch.randn(2, 3, 40, 56)
    given = net(images)[0]
    small = F.interpolate(images, (24, 33), mode='bilinear', antialias=True)
    expected = {}
    for i in (6, 8):
        set_stitch(net, i)
        expected[i] = net(small)[0]
    model = nn.Sequential(net)
    with net.sharing_prefixes():
        # Neither size meets states of the other.
        for i in (6, 8):
            set_stitch(model, i)
            for size in ((24, 33), (16, 16), (24, 33)):
                set_input_size(model, size)
                found = model(images)[0]
                assert found.equal(expected[i]) == (size != (16, 16))
    set_input_size(model, (40, 57))
    with pytest.raises(ValueError, match=r'\(40, 57\); allowed: up to 40x56, which'):
        model(images)
    set_input_size(model, None)
    set_stitch(model, 1)
    assert model(images)[0].equal(given)


def segmentor(**backbone):
    """The config of a segmentor, which predicts crops, with batch norms in its head."""
    model = tiny_config().model
    model.backbone.update(backbone)
    model.test_cfg = dict(mode='slide', crop_size=(48, 48), stride=(16, 16))
    return 'mmseg', model


def classifier(fast_width):
    """The config of a classifier with a head for each anchor."""
    model, sizes = small_toy('cls', '').model, ((fast_width, 2), (12, 4))
    parts = zip(model.backbone.anchors, model.head.anchor_heads, sizes, strict=True)
    for anchor, head, (width, depth) in parts:
        anchor.arch.update(embed_dims=width, depth=depth, num_heads=2)
        head.in_channels = width
    return 'mmpretrain', model


def detector():
    """The config of a detector with a pyramid and region heads for each anchor."""
    reason = "mmcv's compiled ops are not installed"
    pytest.importorskip('mmcv.ops', reason=reason, exc_type=ImportError)
    pytest.importorskip('mmdet')
    model = small_toy('det', '').model
    model.backbone.maps_of, model.test_cfg.rcnn.score_thr = 'end', -1
    pyramids = [dict(type=model.neck.type, in_channels=width) for width in (32, 96)]
    model.neck.update(type='PartPerAnchor', parts=pyramids)
    heads = [dict(type='StandardRoIHead')] * 2
    model.roi_head.update(type='PartPerAnchor', parts=heads)
    return 'mmdet', model


BIASES = dict(stitch_biases=dict(type='StitchBiases'))
CONFIGS = {
    'segmentation': segmentor,
    'biases': lambda: segmentor(plugins=BIASES),
    'classification': lambda: classifier(8),
    'equal widths': lambda: classifier(12),
    'detection': detector,
}
OPS = pytest.param('detection', marks=pytest.mark.ops)
IDS = 0, 1, 2


@pytest.fixture
def build(randomise):
    """Builds the model of a task, with batch norm statistics of three stitches."""

    def build_model(task='segmentation'):
        scope, cfg = CONFIGS[task]()
        pytest.importorskip(scope)
        init_default_scope(scope)
        model = randomise(MODELS.build(cfg)).eval()
        state, norms = model.state_dict(), batch_norms(model)
        keys = [f'{n}.running_{key}' for n in norms for key in ('mean', 'var')]
        own = {i: {key: torch.rand_like(state[key]) for key in keys} for i in IDS}
        PerStitchBN(model, own).attach()
        model.sample_type = sample_type(scope)
        return model

    return build_model


def sample_type(scope):
    structures = importlib.import_module(f'{scope}.structures')
    names = dict(mmseg='SegDataSample', mmdet='DetDataSample', mmpretrain='DataSample')
    return getattr(structures, names[scope])


def batch(sample_type):
    """An image as a data loader gives it."""
    meta = dict(img_shape=(64, 64), ori_shape=(64, 64), scale_factor=(1, 1))
    image = torch.arange(3 * 64 * 64).view(3, 64, 64) % 251
    return dict(inputs=[image], data_samples=[sample_type(metainfo=meta)])


def same(output, other):
    return all(output[key].equal(other[key]) for key in output)


def predict(model, stitch_id=None):
    """The prediction of one image, first switching the model if a stitch is given."""
    if stitch_id is not None:
        set_stitch(model, stitch_id)
    with torch.no_grad():  # in this thread
        (sample,) = model.test_step(batch(model.sample_type))
    return predicted(sample)


@contextmanager
def switching(model, stitch_id):
    """Let another thread switch a model as soon as its backbone has run."""
    with ThreadPoolExecutor(1) as pool:

        def switch(*_):
            hook.remove()
            # It ends after the forward, and without a lock long before.
            wait([pool.submit(set_stitch, model, stitch_id)], timeout=0.1)

        hook = find_stitched_backbone(model).register_forward_hook(switch)
        yield


@pytest.mark.parametrize('task', [*list(CONFIGS)[:-1], OPS])
def test_a_forward_keeps_the_stitch_that_it_began_with(build, task):
    model = build(task)
    wanted = {i: predict(model, i) for i in IDS}
    for before, after in (1, 0), (0, 2), (2, 1):
        assert not same(wanted[before], wanted[after])
        set_stitch(model, before)
        with switching(model, after):
            assert same(predict(model), wanted[before])
        assert same(predict(model), wanted[after])


def test_a_waiting_switch_comes_before_the_next_forward(build):
    model, images = build('classification'), torch.ones(1, 3, 64, 64)
    for before, after in (1, 0), (0, 2), (2, 1):
        set_stitch(model, after)
        wanted = model(images)
        set_stitch(model, before)
        with switching(model, after):
            found = [model(images).equal(wanted) for _ in range(2)]
        assert found == [False, True]


@pytest.mark.parametrize('task', ['biases', 'classification'])
def test_eight_threads_that_switch_and_predict(build, task):
    model = build(task)
    wanted = [predict(model, i) for i in IDS]

    def work(number):
        return [predict(model, IDS[(number + n) % len(IDS)]) for n in range(6)]

    with ThreadPoolExecutor(8) as pool:
        found = [output for outputs in pool.map(work, range(8)) for output in outputs]
    counts = [sum(same(output, one) for output in found) for one in wanted]
    assert sum(counts) == len(found)
    assert all(counts)


def test_a_step_of_test_time_augmentation_is_of_one_stitch(build):
    class Both(BaseTTAModel):
        def merge_preds(self, samples):
            return [[predicted(sample) for sample in images] for images in samples]

    model = Both(build())
    data = {key: [value] * 2 for key, value in batch(model.module.sample_type).items()}
    set_stitch(model, 1)
    with switching(model, 0), torch.no_grad():
        ((first, second),) = model.test_step(data)
    assert same(first, second)
    assert same(first, predict(model.module, 1))


def test_copies_take_no_turns_with_the_model(build):
    model = build()
    copied, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    average = ExponentialMovingAverage(model)
    wanted = predict(model, 0)
    set_stitch(model, 1)
    with ThreadPoolExecutor(1) as pool:

        def run_copies(*_):
            for each in (copied, read, average.module):
                found = pool.submit(predict, each, 0).result(timeout=10)
                assert same(found, wanted)

        hook = model.backbone.register_forward_hook(run_copies)
        found = predict(model)
        hook.remove()
    assert same(found, predict(model, 1))
    assert not same(found, wanted)


@pytest.mark.parametrize('error', [RuntimeError, KeyboardInterrupt])
def test_a_forward_that_was_interrupted_blocks_no_thread(build, error):
    def interrupt(*_):
        raise error

    model = build()
    wanted = predict(model, 0)
    set_stitch(model, 1)
    hook = model.backbone.register_forward_hook(interrupt)
    with pytest.raises(error):
        predict(model)
    hook.remove()
    with ThreadPoolExecutor(1) as pool:
        assert same(pool.submit(predict, model, 0).result(timeout=10), wanted)
