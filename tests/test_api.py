"""The fourteen public names, on an elastic toy model and a tiny stitched pair."""

from copy import deepcopy
from importlib import import_module

import numpy as np
import pytest
import torch
from small import small, write_trained

import snnet_mm as sn
from snnet_mm import api
from snnet_mm.models import find_stitched_backbone

NAMES = """make_elastic stitch train evaluate load set_stitch
set_budget stitches pick predict export Runtime Table measure"""
PLANS = '0:2/128 1:0/64 2:2/128 3:2/128', '0:0/0 1:0/0 2:1/32 3:0/0'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A folder of make_elastic: the network of four blocks and two chains."""
    files = write_trained('seg', tmp_path_factory.mktemp('network'))
    folder = tmp_path_factory.mktemp('elastic')
    options = dict(plans=PLANS, num_images=6, device='cpu')
    sn.make_elastic(*files, folder, **options, say=lambda line: None)
    return folder


@pytest.fixture
def files(folder):
    return folder / 'elastic.py', folder / 'elastic.pth'


@pytest.fixture
def model(folder):
    return sn.load(folder, device='cpu')


@pytest.fixture
def pair():
    return sn.load(small('tiny'), device='cpu')


def active(model):
    return find_stitched_backbone(model).active_stitch.id


def test_public_names_have_examples():
    assert sorted(NAMES.split()) == sn.__all__ == api.__all__
    assert {*sn.__all__, 'CONFIGS', '__version__'} == {*dir(sn)}
    for name in sn.__all__:
        assert 'Examples:\n' in getattr(sn, name).__doc__, name
    with pytest.raises(AttributeError, match="'nothing'"):
        sn.nothing  # noqa: B018


def test_load_folder_of_make_elastic_or_config(folder, files, pair):
    assert active(pair) == 1  # the slow anchor
    assert active(sn.load(folder)) == 0
    model = sn.load(*files, stitch=2, device='cpu')
    assert active(model) == 2
    assert not model.training
    sn.set_stitch(model, 1)
    assert active(model) == 1


def test_load_work_dir_best_or_last_checkpoint(pair, tmp_path):
    """Also where the folder was moved to."""
    work_dir = tmp_path / 'work'
    work_dir.mkdir()
    small('tiny').dump(work_dir / 'toy.py')
    with pytest.raises(ValueError, match='folder_or_config'):
        sn.load(work_dir)

    def save(name, value):
        with torch.no_grad():
            pair.decode_head.conv_seg.bias.fill_(value)
        torch.save(dict(state_dict=pair.state_dict()), work_dir / name)

    def bias(*args):
        return sn.load(*args, device='cpu').decode_head.conv_seg.bias.unique().tolist()

    save('iter_2.pth', 2)
    save('iter_4.pth', 4)
    (work_dir / 'last_checkpoint').write_text('elsewhere/work/iter_4.pth')
    assert bias(work_dir) == [4]
    assert bias(work_dir, work_dir / 'iter_2.pth') == [2]
    save('best_mIoU_iter_3.pth', 3)
    assert bias(work_dir.rename(tmp_path / 'moved')) == [3]


def test_stitches_have_costs_and_scores(model, folder):
    table = sn.measure(model)
    # Configs may have no size, but results do.
    del model.cfg.test_cfg['input_size']
    model.data_preprocessor.size = None
    with pytest.raises(ValueError, match='model.data_preprocessor.size'):
        sn.measure(model)
    rows, results = sn.stitches(model), sn.Table.read(folder / 'stitches.json')
    assert [row['id'] for row in rows] == [0, 1, 2]
    assert [row['route'] for row in rows] == ['network', *PLANS]
    for row, result in zip(rows, results.rows, strict=True):
        assert row['scores'] == result.metrics
        assert row['costs']['latency'] == result.latency
        assert row['costs']['flops'] == result.flops == table[row['id']].flops
    model.loaded_from, model.cfg.test_cfg.input_size = None, (64, 64)
    (row, *_) = sn.stitches(model)
    assert ([*row['costs']], row['scores']) == (['flops', 'params'], {})


def test_set_budget_by_results(model, folder, monkeypatch):
    said, costs = [], sn.measure(model)
    monkeypatch.setattr(api, 'print_log', lambda text, logger: said.append(text))
    monkeypatch.setattr(api, 'cost_table', lambda *_: costs)  # which takes a while
    flops, params = costs.column('flops'), costs.column('params')
    share = 100 * flops[2] / flops[0]
    assert sn.set_budget(model, f'{share + 0.1:.1f}%') == active(model) == 2
    results = sn.Table.read(folder / 'stitches.json')
    best = max(results.rows, key=lambda r: (results.score(r), -r.flops)).id
    for budget in ('100%', f'{2 * max(params.values()) / 1e6}M', '9999ms'):
        choice = sn.pick(model, budget)
        assert choice.id == sn.set_budget(model, budget) == active(model) == best
        assert 'the best of 3 evaluated stitches' in choice.reason == said[-1]
    for budget, words in (
        ('12', "budget='12'"),
        ('1%', 'no evaluated stitch is that cheap'),
    ):
        with pytest.raises(ValueError, match=words):
            sn.pick(model, budget)
    model.loaded_from = None
    with pytest.raises(ValueError, match='results=None .* SkipSpace'):
        sn.pick(model, '100%')
    assert sn.set_budget(model, '100%', results) == best


def test_pick_pair_without_results_by_costs(pair, monkeypatch):
    """Milliseconds are measured."""
    table = sn.measure(pair)
    monkeypatch.setattr(api, 'cost_table', lambda *_: table)  # which takes a while
    costs = table.column('flops')
    most = 0.9 * max(costs.values())
    for budget in ('90%', f'{most / 1e9:.9f}G', '9999ms'):
        choice = sn.pick(pair, budget)
        assert 'the prior' in choice.reason
        assert budget == '9999ms' or 0 < costs[choice.id] <= most + 1e3


def test_predict_builds_an_inferencer_once(model, monkeypatch, tmp_path):
    built, image = [], np.zeros((48, 64, 3), np.uint8)
    module = import_module('snnet_mm.inferencers')
    init = module.init_inferencer
    build = lambda model: built.append(model) or init(model)  # noqa: E731
    monkeypatch.setattr(module, 'init_inferencer', build)
    first = sn.predict(model, image, tmp_path)[0]
    sn.set_stitch(model, 2)
    assert (sn.predict(model, image, tmp_path)[0] != first).any()
    assert len([*tmp_path.rglob('*.jpg')]) == 1  # numbered in each call anew
    assert built == [model]
    copy = deepcopy(model)
    sn.set_stitch(copy, 0)
    assert (sn.predict(copy, image)[0] == first).all()
    resize = dict(type='Resize', scale=(32, 32))
    copy.cfg.test_dataloader.dataset.pipeline.insert(1, resize)
    sn.predict(copy, image)
    assert built == [model, copy, copy]


def test_evaluate_writes_results(folder, files, tmp_path):
    results = sn.evaluate(*files, [0, 2], tmp_path, limit=4)
    known = sn.Table.read(folder / 'stitches.json')
    wanted = {i: known[i].metrics for i in (0, 2)}
    assert {row.id: row.metrics for row in results.rows} == wanted
    assert results == sn.Table.read(tmp_path / 'stitches.json')


@pytest.mark.slow
def test_export_single_stitch_and_bundle(model, tmp_path):
    pytest.importorskip('onnxruntime')
    manifest = sn.export(model, tmp_path / 'bundle', [0, 2])
    assert [stitch['id'] for stitch in manifest['stitches']] == [0, 2]
    runtime, image = sn.Runtime(tmp_path / 'bundle'), np.zeros((64, 64, 3), np.uint8)
    runtime.set_stitch(2)
    sn.set_stitch(model, 2)
    assert (runtime(image) == sn.predict(model, image)[0]).mean() > 0.99
    (single,) = sn.export(model, tmp_path / 'single', 1, ('mm',))['stitches']
    assert single['id'] == 1
