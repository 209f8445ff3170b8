"""A model with weights in, its elastic version out."""

import json
import re
import sys
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from torch.utils._pytree import tree_leaves
from trained_toys import DEPTH, write_trained

import snnet_mm as sn
from snnet_mm.anchors.pretrained import read_weights
from snnet_mm.elastic import Conversion, make_elastic
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import load_weights_only

SLOW = pytest.mark.slow
OTHERS = 'depth', 'det', 'cls', 'dino', 'mask2former', 'eomt'
TASKS = ['seg', *(pytest.param(t, marks=SLOW) for t in OTHERS)]
BY_KIND = 'LearningRateDecayOptimizerConstructor'
OPTIONS = dict(device='cpu', num_images=6)
# Two chains of the network of four blocks, 2 heads and 128 neurons.
PLANS = '0:2/128 1:0/64 2:1/128 3:2/128', '0:0/0 1:1/16 2:0/0 3:2/0'


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Config and checkpoint of a network, by task, written once."""
    made = {}

    def write(task='seg'):
        if task not in made:
            made[task] = write_trained(task, tmp_path_factory.mktemp(task))
        return made[task]

    return write


@pytest.fixture
def quick(monkeypatch):
    """Without the measuring of milliseconds and the pictures at the end."""
    job = sys.modules[make_elastic.__module__]._Job
    monkeypatch.setattr(job, 'evaluate', lambda self: self)
    return lambda *args, **kwargs: make_elastic(*args, **OPTIONS | kwargs)


@pytest.fixture
def folder_of_images(tmp_path):
    """Images of several sizes in two levels of folders."""
    random = np.random.default_rng(0)
    for i, size in enumerate([(64, 64), (64, 64), (48, 80), (90, 50)]):
        path = tmp_path / 'images' / 'ab'[i % 2] / f'{i}.{["png", "JPG"][i % 2]}'
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), random.integers(0, 256, (*size, 3), np.uint8))
    (tmp_path / 'images' / 'notes.txt').write_text('no image')
    return tmp_path / 'images'


def outputs(model, stitch=None):
    if stitch is not None:
        set_stitch(model, stitch)
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        leaves = tree_leaves(model.extract_feat(images))
    return [t for t in leaves if isinstance(t, torch.Tensor)]


def all_equal(found, wanted):
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize('task', TASKS)
def test_a_model_of_every_task_is_unchanged_at_the_largest_budget(
    trained, tmp_path, task
):
    files, lines = trained(task), []
    results = make_elastic(*files, tmp_path, say=lines.append, **OPTIONS)
    kind = 'equal bit for bit'
    assert lines[0] == f'PlainViT with {2 * DEPTH} branches: features are {kind}'
    assert StitchTable.read(tmp_path / 'stitches.json') == results
    rows = {r.id: r for r in results.rows}
    assert [*rows] == [*range(len(rows))]
    assert 1 < len(rows) <= 5
    flops = [row.flops for row in rows.values()]
    assert flops == sorted({*flops}, reverse=True)
    found = re.findall(r'(\d+)% of the FLOPs', '\n'.join(lines))
    assert [round(100 * n / flops[0]) for n in flops[1:]] == [*map(int, found)]
    assert all(row.latency > 0 for row in rows.values())
    for name in ('pareto.png', 'predictions.png', 'elastic.py', 'search.json'):
        assert (tmp_path / name).stat().st_size
    network = init_model(*files, device='cpu')
    elastic = init_model(
        tmp_path / 'elastic.py', tmp_path / 'elastic.pth', device='cpu'
    )
    assert all_equal(outputs(elastic, 0), outputs(network))
    assert not all_equal(outputs(elastic, 1), outputs(network))
    assert find_stitched_backbone(elastic).stitching_initialized
    assert elastic.dataset_meta == network.dataset_meta


@pytest.mark.slow
def test_files_work_in_the_tools_and_one_file_in_the_package_itself(
    trained, run_here, quick, tmp_path
):
    files = trained()
    quick(*files, tmp_path / 'a', plans=PLANS)
    quick(*files, tmp_path / 'b', plans=PLANS, whole=True)
    held, joined = (
        {k: load(tmp_path / f / 'elastic.pth') for f, k in (('a', 'two'), ('b', 'one'))}
        for load in (lambda p: torch.load(p, weights_only=True), load_weights_only)
    )
    assert 'base_checkpoint' not in held['one']['meta']
    assert held['one']['meta'] == joined['two']['meta']
    one, two = (joined[k]['state_dict'] for k in ('one', 'two'))
    assert one.keys() == two.keys()
    assert all(torch.equal(v, two[k]) for k, v in one.items())
    network = torch.load(files[1])['state_dict']
    assert len(held['two']['state_dict']) == len(one) - len(network)
    from mmseg.apis import init_model as by_mmseg

    paths = [str(tmp_path / 'b' / f'elastic.{end}') for end in ('py', 'pth')]
    theirs = by_mmseg(*paths, device='cpu')
    assert all_equal(outputs(theirs), outputs(init_model(*files, device='cpu')))
    with pytest.raises(ValueError, match='no weights of the network'):
        by_mmseg(*(str(tmp_path / 'a' / f'elastic.{e}') for e in ('py', 'pth')))
    paths = [tmp_path / 'a' / f'elastic.{end}' for end in ('py', 'pth')]
    out, routes = tmp_path / 'out', {}
    for ids in ('0,2', '1'):
        args = '--stitch-id', ids, '--out', out, '--format', 'mm'
        run_here('export_stitch.py', *paths, *args)
        manifest = json.loads((out / 'manifest.json').read_text())
        routes |= {s['id']: s['route'] for s in manifest['stitches']}
    for i in (0, 1, 2):
        exported = init_model(
            out / f'stitch_{i}.py', out / f'stitch_{i}.pth', device='cpu'
        )
        stitch = init_model(*paths, device='cpu', stitch=i)
        assert all_equal(outputs(exported), outputs(stitch))
    assert routes == {0: 'network', 1: PLANS[0], 2: PLANS[1]}
    printed = run_here('test.py', *paths, '--stitch-id', 2, '--work-dir', out)
    assert '0:0/0 1:1/16' in printed


def test_images_of_a_folder_of_any_sizes_without_labels(
    trained, quick, folder_of_images, tmp_path, monkeypatch
):
    lines = []
    # The images of the test set are no files, as this pipeline expects.
    module = sys.modules[make_elastic.__module__]
    monkeypatch.setattr(module, 'try_test', lambda *args: None)
    # No training set is needed.
    cfg = Config.fromfile(trained()[0])
    cfg.train_dataloader = cfg.train_cfg = cfg.optim_wrapper = None
    cfg.param_scheduler = None
    cfg.test_dataloader.dataset.pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=(64, 64), keep_ratio=True),
        dict(type='PackSegInputs'),
    ]
    (tmp_path / 'made').mkdir()
    cfg.dump(tmp_path / 'made' / 'network.py')
    config = tmp_path / 'made' / 'network.py'
    args = (config, trained()[1], tmp_path)
    quick(*args, images=folder_of_images, plans=PLANS, say=lines.append)
    assert f'Measuring {2 * DEPTH} steps of the network on 4 images' in lines
    elastic = Config.fromfile(tmp_path / 'elastic.py')
    assert elastic.model.backbone.chains == [*PLANS]
    (tmp_path / 'none').mkdir()
    for folder in (tmp_path / 'none', tmp_path / 'missing'):
        with pytest.raises(
            ValueError, match=f'{folder.name}.*images.*option: --images'
        ):
            quick(*args, images=folder)
    with pytest.raises(ValueError, match='train_dataloader.*option: --images'):
        quick(*args)


def weights_in(folder):
    return load_weights_only(folder / 'elastic.pth')['state_dict']


@pytest.mark.parametrize(
    'task, tokens, enough',
    [('depth', 1024, 30), ('depth', 2000, 24), ('classification', 1024, 500)],
)
def test_images_to_measure_have_ten_tokens_per_channel(
    monkeypatch, task, tokens, enough
):
    class View(list):
        widths = [12, 3072, 1]  # the last step cannot be narrow

    module = sys.modules[make_elastic.__module__]
    monkeypatch.setattr(module, 'task_of', lambda model: SimpleNamespace(name=task))
    job = object.__new__(module._Job)
    job.view = View(SimpleNamespace(group=n) for n in (64, 1, 9999))
    job.model, job.tokens = None, [tokens] * 3
    assert job._enough_images(module.NUM_IMAGES) == enough


def test_an_interrupted_measurement_goes_on(trained, quick, tmp_path, monkeypatch):
    job = sys.modules[make_elastic.__module__]._Job
    monkeypatch.setattr(job, '_enough_images', lambda self, at_least: 5)
    files, lines, again = trained(), [], []
    quick(*files, tmp_path / 'a', budgets='75%', say=lines.append)
    assert f'Measuring {2 * DEPTH} steps of the network on 5 images' in lines
    assert any(line.endswith('chains on 6 images') for line in lines)
    wanted = json.loads((tmp_path / 'a' / 'search.json').read_text())
    (tmp_path / 'b').mkdir()
    some = dict(wanted, steps=wanted['steps'][:5])
    (tmp_path / 'b' / 'search.json').write_text(json.dumps(some))
    quick(*files, tmp_path / 'b', budgets='75%', say=again.append)
    assert json.loads((tmp_path / 'b' / 'search.json').read_text()) == wanted
    measured = [line for line in lines if ': divergence' in line]
    assert len(measured) == 2 * DEPTH
    assert len([line for line in again if ': divergence' in line]) == 2 * DEPTH - 5
    a, b = (weights_in(tmp_path / name) for name in 'ab')
    assert all(torch.equal(value, b[key]) for key, value in a.items())


def test_later_budgets_measure_nothing_and_reuse_fits(trained, quick, tmp_path):
    """Unless the images or the orders of units are others."""
    files, lines = trained(), []
    quick(*files, tmp_path / 'a', budgets='80%,60%')
    before = weights_in(tmp_path / 'a')

    def run(name, budgets, **kwargs):
        lines.clear()
        job = quick(
            *files, tmp_path / name, budgets=budgets, say=lines.append, **kwargs
        )
        fitting = (line for line in lines if line.startswith('Fitting'))
        measured = any(line.startswith('Measuring') for line in lines)
        return job.chains, next(fitting, ''), measured

    chains, fitting, measured = run('a', '70%,60%')
    assert (fitting, measured) == ('Fitting 1 of 2 chains on 6 images', False)
    after = weights_in(tmp_path / 'a')
    assert run('b', '70%,60%')[:2] == (chains, 'Fitting 2 chains on 6 images')
    for key, value in weights_in(tmp_path / 'b').items():
        torch.testing.assert_close(after[key], value, rtol=1e-4, atol=1e-5)
        if 'layers.narrow2' in key:
            assert torch.equal(after[key], before[key])
    assert run('a', '60%') == (chains[1:], '', False)
    path = tmp_path / 'a' / 'search.json'
    search = json.loads(path.read_text())
    for step in search['steps']:
        step['order'].reverse()
    path.write_text(json.dumps(search))
    assert run('a', '60%')[1:] == ('Fitting 1 chains on 6 images', False)
    assert run('a', '60%', seed=1)[1:] == ('Fitting 1 chains on 6 images', True)


@pytest.mark.parametrize('task', ['seg', pytest.param('depth', marks=SLOW)])
def test_chains_of_segmentors_are_fitted_with_weights_of_tokens(
    trained, quick, tmp_path, monkeypatch, task
):
    module, seen = sys.modules[make_elastic.__module__], []

    def weights(model, batches):
        seen.append(len(batches))
        return lambda i, state: torch.ones(state.tokens.shape[:2])

    monkeypatch.setattr(module, 'RareClassWeights', weights)
    quick(*trained(task), tmp_path, blocks=[(0, 1)])
    assert seen == [6] * (task == 'seg')
    fits = load_weights_only(tmp_path / 'elastic.pth')['meta']['chain_fits']
    assert fits['weighted'] == (task == 'seg')


@pytest.mark.slow
def test_a_network_trained_again_gets_new_chains(trained, quick, tmp_path):
    """In a folder with chains of the old one, of this version or an earlier."""
    files, plans = trained(), PLANS[1:]
    config, path = spoilt(files, tmp_path / 'x.pth', lambda weights: None)
    quick(config, path, tmp_path / 'a', plans=plans)
    spoilt(files, path, lambda w: w['backbone.blocks.1.mlp.fc1.bias'].add_(1))
    elastic = tmp_path / 'a' / 'elastic.py', tmp_path / 'a' / 'elastic.pth'
    with pytest.raises(ValueError, match='have changed .*make_elastic.py again'):
        init_model(*elastic, device='cpu')
    old = dict(identity=dict(network='x'), chains=[dict(kept=[0, 1])])
    (tmp_path / 'a' / 'search.json').write_text(json.dumps(old))
    quick(config, path, tmp_path / 'a', plans=plans)
    found = outputs(init_model(*elastic, device='cpu'), 0)
    assert all_equal(found, outputs(init_model(config, path, device='cpu')))


def test_make_elastic_reads_and_converts_the_network_once(
    trained, quick, tmp_path, monkeypatch
):
    files, read, built = trained(), [], []
    modules = sys.modules[make_elastic.__module__], sys.modules[init_model.__module__]
    for module in modules:
        monkeypatch.setattr(module, 'load_weights_only', reading(read))
    original = Conversion.build
    count = lambda *args: built.append(args[2]) or original(*args)  # noqa: E731
    monkeypatch.setattr(Conversion, 'build', count)
    quick(*files, tmp_path, budgets='75%')
    assert (read, built) == ([files[1]], [[]])


def reading(read):
    """Return ``load_weights_only``, with a list of the files that it reads."""

    def load(path, **kwargs):
        read.append(path)
        return load_weights_only(path, **kwargs)

    return load


@pytest.mark.slow
@pytest.mark.parametrize(
    'constructor, key, number, kind',
    [
        pytest.param(
            *(BY_KIND, 'decay_rate', DEPTH, 'layer_wise'),
            marks=pytest.mark.slow,
        ),
        (BY_KIND, 'decay_rate', 1, 'stage_wise'),
        ('LayerDecayOptimizerConstructor', 'layer_decay_rate', DEPTH, None),
    ],
)
def test_layer_decay_and_mixed_precision_of_mm_train_a_chain_exported_alone(
    trained, quick, tmp_path, constructor, key, number, kind
):
    """mm's constructors know only mm's backbones, its AMP no CPU."""
    config, checkpoint = trained()
    cfg, rate, lr = Config.fromfile(config), 0.5, 1e-3
    cfg.optim_wrapper = dict(
        type='AmpOptimWrapper',
        optimizer=dict(type='AdamW', lr=lr, weight_decay=0.0),
        constructor=constructor,
        paramwise_cfg={key: rate, 'num_layers': number, 'decay_type': kind},
    )
    quick(cfg, checkpoint, tmp_path, plans=['1:0/0 3:0/0'])
    model = sn.load(tmp_path / 'elastic.py', tmp_path / 'elastic.pth', device='cpu')
    sn.export(model, tmp_path / 'alone', 1, ['mm'])
    alone = tmp_path / 'alone' / 'stitch_1.py'
    start = dict(load_from=str(alone.with_suffix('.pth')))
    last = sn.train(alone, tmp_path / 'training', iters=1, cfg_options=start)
    written = Config.fromfile(alone).optim_wrapper
    assert written.constructor == 'AnchorLayerDecayConstructor'
    stages = dict(num_layers=number) if kind == 'stage_wise' else {}
    assert written.paramwise_cfg == dict(decay_rates=rate, **stages)
    assert written.type == 'AmpOptimWrapper'  # of the config, for any device
    before = torch.load(checkpoint)['state_dict']
    after = read_weights(last)
    for block in (0, 2):  # Adam's first step is lr
        name = f'blocks.{block}.mlp.fc1.weight'
        step = after[f'backbone.net.{name}'] - before[f'backbone.{name}']
        expected = lr * rate ** ((DEPTH - block) * (number + 1) / (DEPTH + 1))
        assert step.abs().max().item() == pytest.approx(expected, rel=0.01)


def test_make_elastic_blocks_keeps_them_whole(trained, quick, tmp_path):
    quick(*trained(), tmp_path, blocks=[(0, 2), (1,)])
    chains = Config.fromfile(tmp_path / 'elastic.py').model.backbone.chains
    assert chains == ['0:2/128 1:0/0 2:2/128 3:0/0', '0:0/0 1:2/128 2:0/0 3:0/0']


@pytest.mark.parametrize(
    'options, words',
    [
        (dict(budgets=2), 'budgets=2 is invalid'),
        (dict(budgets='many'), "budgets='many'"),
        (dict(budgets='50%,'), "budgets=''"),
        (dict(budgets='300MB'), 'budgets=.*in %, G, M, ms'),
        (dict(budgets='100%'), 'below .*, the cost of the network'),
        (dict(budgets='1%'), 'at least .*, the cheapest plan: 0:'),
        (dict(plans=['0:3/8']), r"plan\[0\]='0:3/8' .*0:0 to 2/0 to 128"),
        (dict(plans=['4:0/0']), r"plan\[0\]='4:0/0' is invalid"),
        (dict(plans=['1:0/0', '1:2/128']), r'plan\[1\]=.*fewer units'),
        (dict(plans=['1:2/127'], num_images=1), 'num-images=1 is .* 20 or more'),
        (dict(blocks=[(0, 4)]), r'blocks=\[0, 4\] is .*fewer than all of .* 0 to 3'),
        (dict(num_images=0), '--num-images'),
    ],
)
def test_wrong_options(trained, quick, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        quick(*trained(), tmp_path, **options)
    assert not (tmp_path / 'elastic.pth').exists()
    # Before anything is measured.
    assert 'budgets' not in options or not (tmp_path / 'search.json').exists()


def spoilt(files, path, change):
    loaded = torch.load(files[1])
    change(loaded['state_dict'])
    torch.save(loaded, path)
    return files[0], path


def test_wrong_weights(trained, quick, tmp_path):
    files, path, key = trained(), tmp_path / 'x.pth', 'backbone.blocks.1.mlp.fc1.weight'
    nan = spoilt(files, path, lambda w: w[key].view(-1)[3:4].fill_(torch.nan))
    with pytest.raises(ValueError, match=f'{key} that is not finite'):
        quick(*nan, tmp_path / 'a')
    other = spoilt(files, path, lambda w: w.update({key: w[key][:8]}))
    with pytest.raises(ValueError, match=r'fc1.weight'):
        quick(*other, tmp_path / 'a')
    other = spoilt(files, path, lambda w: w.pop(key))
    with pytest.raises(ValueError, match=r'fc1.weight'):
        quick(*other, tmp_path / 'a')
    quick(*files, tmp_path / 'a', plans=['1:0/0'])
    elastic = tmp_path / 'a' / 'elastic.py', tmp_path / 'a' / 'elastic.pth'
    with pytest.raises(ValueError, match="'ElasticBackbone'.*not stitched yet"):
        quick(*elastic, tmp_path / 'b')


def test_a_checkpoint_on_the_net_is_refused(trained, tmp_path):
    url = 'https://download.openmmlab.com/x/y.pth'
    with pytest.raises(ValueError, match=f'{url} is a URL: download.*t: checkpoint'):
        make_elastic(trained()[0], url, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_the_network_is_never_written_over(trained, quick, tmp_path):
    files = trained()
    path = tmp_path / 'elastic.pth'
    path.write_bytes(files[1].read_bytes())
    with pytest.raises(ValueError, match='elastic.pth.*--work-dir'):
        quick(files[0], path, tmp_path, plans=['1:0/0'])
    assert path.read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    'task, tokens, number', [('seg', 0, 2), ('cls', 0, 3), ('seg', 10, 20)]
)
def test_classifiers_and_wide_branches_are_fitted_on_more_images(
    trained, quick, tmp_path, monkeypatch, task, tokens, number
):
    """Ten tokens for each of 128 neurons are those of 20 images."""
    module, lines = sys.modules[make_elastic.__module__], []
    assert (module.FIT_IMAGES, module.OF_CLASSIFIERS) == (200, 500)
    monkeypatch.setattr(module, 'TOKENS', tokens)
    monkeypatch.setattr(module, 'FIT_IMAGES', 2)
    monkeypatch.setattr(module, 'OF_CLASSIFIERS', 3)
    options = dict(plans=['1:0/0'], num_images=None, say=lines.append)
    quick(*trained(task), tmp_path, **options)
    assert f'Fitting 1 chains on {number} images' in lines


@pytest.mark.parametrize(
    'task, tokens, number',
    [
        ('segmentation', [205, 204], 24),
        ('segmentation', [4096, 1024], 5),
        ('detection', [9000], 4),
        ('classification', [1025], 24),
    ],
)
def test_fewer_images_of_many_tokens_are_compared(monkeypatch, task, tokens, number):
    module = sys.modules[make_elastic.__module__]
    monkeypatch.setattr(module, 'task_of', lambda model: SimpleNamespace(name=task))
    job = SimpleNamespace(tokens=tokens, model=None)
    assert module._Job._num_compared(job) == number


def test_fewer_tokens_than_ten_per_unknown_are_warned_of(trained, quick, tmp_path):
    """By the widest fit of all chains, here one of 128 neurons on 65 tokens each."""
    lines, plans = [], ['1:2/100', '1:2/8']
    quick(*trained(), tmp_path, plans=plans, num_images=2, say=lines.append)
    (warning,) = (line for line in lines if 'Warning' in line)
    assert '--num-images=2; better 16 or more' in warning
    assert 'in block 1, has 100 unknowns, and 2 images have 130 tokens' in warning
    plans[0] = '1:2/8'
    quick(*trained(), tmp_path, plans=['1:2/8 3:0/0'], num_images=5, say=lines.append)
    assert len([line for line in lines if 'Warning' in line]) == 1


def test_a_model_that_a_wrapper_trained(trained, quick, tmp_path):
    files = trained()
    cfg = Config.fromfile(files[0])
    cfg.model = dict(type='SandwichWrapper', model=cfg.model)
    quick(cfg, files[1], tmp_path, plans=['1:0/0'])
    elastic = Config.fromfile(tmp_path / 'elastic.py')
    assert elastic.model.type == 'EncoderDecoder'
