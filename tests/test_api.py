"""The fourteen public names, on an elastic toy model."""

from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from unittest.mock import MagicMock

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from tiny import TOY
from trained_toys import write_trained

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
def model(folder):
    return sn.load(folder, device='cpu')


def active(model):
    return find_stitched_backbone(model).active_stitch.id


def test_fourteen_names_with_examples():
    assert sorted(NAMES.split()) == sn.__all__ == api.__all__
    assert {*sn.__all__, '__version__'} <= {*dir(sn)}
    for name in sn.__all__:
        assert 'Examples:\n' in getattr(sn, name).__doc__, name
    with pytest.raises(AttributeError, match="'snnet_mm' has no attribute 'nothing'"):
        sn.nothing  # noqa: B018


def test_models_are_loaded_from_a_folder_or_a_config(folder):
    assert active(sn.load(folder)) == 0
    assert active(sn.load(TOY, device='cpu')) == 1  # the slow anchor
    files = folder / 'elastic.py', folder / 'elastic.pth'
    model = sn.load(*files, stitch=2, device='cpu')
    assert active(model) == 2
    assert not model.training
    sn.set_stitch(model, 1)
    assert active(model) == 1
    own = sn.load(folder, folder / 'elastic.pth', device='cpu')
    assert own.loaded_from == folder / 'elastic.pth'


def test_models_are_loaded_from_a_work_directory(folder, tmp_path):
    """The best checkpoint or the last, wherever the folder is now."""
    work_dir, config = tmp_path / 'work', Config.fromfile(TOY)
    with pytest.raises(ValueError, match='a folder of make_elastic, or a work dir'):
        sn.load(tmp_path)
    work_dir.mkdir()
    config.dump(work_dir / 'toy.py')
    with pytest.raises(ValueError, match='and last_checkpoint of a training'):
        sn.load(work_dir)
    model = sn.load(TOY, device='cpu')

    def save(name, value):
        with torch.no_grad():
            model.decode_head.conv_seg.bias.fill_(value)
        torch.save(dict(state_dict=model.state_dict()), work_dir / name)

    def bias(*args):
        return sn.load(*args, device='cpu').decode_head.conv_seg.bias.unique().tolist()

    save('iter_2.pth', 2)
    save('iter_4.pth', 4)
    (work_dir / 'last_checkpoint').write_text('elsewhere/work/iter_4.pth')
    assert bias(work_dir) == [4]
    assert bias(work_dir, work_dir / 'iter_2.pth') == [2]
    save('best_mIoU_iter_3.pth', 3)
    moved = work_dir.rename(tmp_path / 'moved')
    assert bias(moved) == [3]


def test_stitches_have_costs_and_scores(model, folder):
    rows, table = sn.stitches(model), sn.measure(model)
    results = sn.Table.read(folder / 'stitches.json')
    assert [row['id'] for row in rows] == [0, 1, 2]
    assert len({row['route'] for row in rows}) == 3
    for row, result in zip(rows, results.rows, strict=True):
        assert row['scores'] == result.metrics
        assert row['costs']['latency'] == result.latency
        assert row['costs']['flops'] == result.flops == table[row['id']].flops
    model.loaded_from = None
    assert [(*row['costs'], *row['scores']) for row in sn.stitches(model)] == [
        ('flops', 'params')
    ] * 3
    assert min(cost.latency for cost in sn.measure(model, latency=True).rows)


def test_budgets_go_by_results_and_else_by_costs(model):
    costs = sn.measure(model)
    flops, params = costs.column('flops'), costs.column('params')
    share = 100 * flops[2] / flops[0]
    assert sn.set_budget(model, f'{share + 0.1:.1f}%') == active(model) == 2
    results = sn.Table.read(Path(model.loaded_from).with_name('stitches.json'))
    best = max(results.rows, key=lambda r: (results.score(r), -r.flops)).id
    for budget in ('100%', f'{2 * max(params.values()) / 1e6}M', '9999ms'):
        choice = sn.pick(model, budget)
        assert choice.id == sn.set_budget(model, budget) == active(model) == best
        assert 'the best of 3 evaluated stitches' in choice.reason
    assert sn.set_budget(model, '100%', results) == best
    for budget in ('many%', '-3%', '0%', '12'):
        with pytest.raises(ValueError, match=f"budget='{budget}' is invalid"):
            sn.pick(model, budget)
    with pytest.raises(ValueError, match='no evaluated stitch is that cheap'):
        sn.pick(model, '1%')
    model.loaded_from = None
    with pytest.raises(ValueError, match='results=None .* SkipSpace'):
        sn.pick(model, '100%')


def test_budgets_without_results():
    """By costs, of which milliseconds are measured; elastic models need results."""
    model = sn.load(TOY, device='cpu')
    costs = sn.measure(model).column('flops')
    largest = max(costs.values())
    for budget in ('70%', f'{0.7 * largest / 1e9:.6f}G', '9999ms'):
        choice = sn.pick(model, budget)
        assert 'the prior' in choice.reason
        assert budget == '9999ms' or 0 < costs[choice.id] <= 0.7 * largest + 1e3


def test_what_a_budget_chose_is_logged(model, monkeypatch):
    said = []
    monkeypatch.setattr(api, 'print_log', lambda text, logger: said.append(text))
    sn.set_budget(model, '100%')
    path = Path(model.loaded_from).with_name('stitches.json')
    assert 'the best of 3 evaluated stitches' in said[0]
    assert said[0].endswith(f'({path})')
    sn.set_budget(model, '100%', sn.Table.read(path))
    assert said[1] == said[0].removesuffix(f' ({path})')
    sn.set_budget(sn.load(TOY, device='cpu'), '50%')
    assert 'by the prior, a guess' in said[2]


def test_an_inferencer_is_built_once(model, monkeypatch):
    built, image = [], np.zeros((48, 64, 3), np.uint8)
    module = import_module('snnet_mm.inference.init_inferencer')
    init = module.init_inferencer
    build = lambda model: built.append(model) or init(model)  # noqa: E731
    monkeypatch.setattr(module, 'init_inferencer', build)
    first = sn.predict(model, image)[0]
    copy = deepcopy(model)
    sn.set_stitch(model, 2)
    sn.predict(model, image)
    assert built == [model]
    assert (sn.predict(copy, image)[0] == first).all()
    assert built == [model, copy]  # a copy has its own
    model.cfg.test_dataloader.dataset.pipeline.insert(
        1, dict(type='Resize', scale=(32, 32))
    )
    sn.predict(model, image)
    assert built == [model, copy, model]


def test_predictions_are_those_of_the_active_stitch(model, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    for image, name in zip(images, 'ab', strict=True):
        cv2.imwrite(str(tmp_path / f'{name}.png'), image)
    found = []
    for stitch in (0, 2):
        sn.set_stitch(model, stitch)
        found.append(sn.predict(model, tmp_path, out_dir=tmp_path / 'drawn'))
        assert [mask.shape for mask in found[-1]] == [(64, 64)] * 2
        (alone,) = sn.predict(model, images[0])
        assert np.array_equal(alone, found[-1][0])
    assert (found[0][0] != found[1][0]).any()
    assert len([*(tmp_path / 'drawn').rglob('*.png')]) == 2


def test_stitches_are_tested(folder, tmp_path):
    files = folder / 'elastic.py', folder / 'elastic.pth'
    results = sn.evaluate(*files, [0, 2], tmp_path, limit=4)
    known = sn.Table.read(folder / 'stitches.json')
    assert {r.id: r.metrics for r in results.rows} == {
        r.id: r.metrics for r in known.rows if r.id != 1
    }
    assert (tmp_path / 'stitches.json').is_file()


def test_evaluate_at_another_size(folder, tmp_path):
    files, work_dir = (tmp_path / 'own.py', folder / 'elastic.pth'), tmp_path / 'test'
    cfg = Config.fromfile(folder / 'elastic.py')
    cfg.test_cfg.resize = (32, 48)
    cfg.dump(files[0])
    results = sn.evaluate(*files, [1], work_dir, limit=2)
    assert [(r.id, r.num_images) for r in results.rows] == [(1, 2)]
    assert results.input_size == (32, 48)
    assert results == sn.Table.read(work_dir / 'stitches.json')
    with pytest.raises(ValueError, match="options='out_dir'"):
        sn.evaluate(*files, [1], work_dir, out_dir=tmp_path)


def test_files_that_do_not_exist(folder, tmp_path):
    with pytest.raises(ValueError, match='none.pth does not exist.*checkpoint'):
        sn.evaluate(folder / 'elastic.py', tmp_path / 'none.pth')
    options = {'load_from': str(tmp_path / 'none.pth')}
    with pytest.raises(ValueError, match='none.pth does not exist.*load_from'):
        sn.train(folder / 'elastic.py', tmp_path, cfg_options=options)


def test_training_is_resumed_in_its_folder(folder, tmp_path, monkeypatch):
    """A checkpoint of the config initialises the first run only, unless asked for."""
    runs, files = [], (str(folder / 'elastic.pth'), str(tmp_path / 'own.py'))
    cfg = Config.fromfile(folder / 'elastic.py')

    @contextmanager
    def runner(cfg, *_):
        runs.append((cfg.resume, cfg.load_from))
        yield MagicMock()

    def run(resume, named=None, own=False):
        cfg.load_from, cfg.resume = files[0], own
        cfg.dump(files[1])
        options = named and dict(load_from=named)
        sn.train(files[1], tmp_path, resume=resume, cfg_options=options)
        return runs[-1]

    monkeypatch.setattr(api.run, '_runner', runner)
    assert run(resume=True) == (False, files[0])  # nothing to resume yet
    (tmp_path / 'last_checkpoint').write_text('iter_2.pth')
    assert run(resume=True) == (True, None)
    assert run(resume=False) == (False, files[0])
    assert run(resume=None, own=True) == (True, files[0])
    assert run(resume=False, own=True) == (False, files[0])
    assert run(resume=True, named=files[0]) == (True, files[0])


def test_an_elastic_network_is_not_trained(folder, tmp_path):
    """It would train the network alone, from random weights."""
    with pytest.raises(ValueError, match="'ElasticBackbone'.*--format mm.*backbone"):
        sn.train(folder / 'elastic.py', tmp_path / 'training')
    assert not (tmp_path / 'training').exists()


@pytest.mark.slow
def test_export(folder, tmp_path):
    model = sn.load(folder, device='cpu')
    pytest.importorskip('onnxruntime')
    manifest = sn.export(model, tmp_path / 'bundle', [0, 2])
    assert [stitch['id'] for stitch in manifest['stitches']] == [0, 2]
    runtime, image = sn.Runtime(tmp_path / 'bundle'), np.zeros((64, 64, 3), np.uint8)
    runtime.set_stitch(2)
    sn.set_stitch(model, 2)
    assert (runtime(image) == sn.predict(model, image)[0]).mean() > 0.99
    (single,) = sn.export(model, tmp_path / 'single', 1, ('mm',))['stitches']
    assert single['id'] == 1


def test_a_config_without_a_size_is_counted_at_that_of_its_results(model):
    del model.cfg.test_cfg['input_size']
    model.data_preprocessor.size = None
    with pytest.raises(ValueError, match='input_size, model.data_preprocessor.size'):
        sn.measure(model)
    assert [row['id'] for row in sn.stitches(model)] == [0, 1, 2]
