import json
import re
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import cv2
import numpy as np
import pytest
import torch
from mm_backbones import SAM
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmseg.models import EncoderDecoder
from small import DEPTH, write_trained
from staged_anchors import disturb
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from snnet_mm.costs import cost_table
from snnet_mm.elastic import elastic_model, make_elastic, runtime_costs
from snnet_mm.elastic import job as job_module
from snnet_mm.elastic.choosing import LEAST, MOST
from snnet_mm.evaluation import tables
from snnet_mm.exports import StitchExporter
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.runtime import StitchRuntime
from snnet_mm.stitching import StitchTable
from snnet_mm.training import run
from snnet_mm.utils import load_weights_only

MODULE = sys.modules[make_elastic.__module__]
SLOW = pytest.mark.slow
OTHERS = 'depth', 'det', 'cls', 'dino', 'mask2former', 'eomt'
TASKS = ['seg', *(pytest.param(t, marks=SLOW) for t in OTHERS)]
OPTIONS = dict(device='cpu', num_images=6, force=True)  # toys have costly heads
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
    """Make a network elastic without testing it; return what was said."""
    monkeypatch.setattr(job_module.Job, 'evaluate', lambda self: None)

    def run(*args, **kwargs):
        lines = []
        make_elastic(*args, **OPTIONS | kwargs, say=lines.append)
        return lines

    return run


def load(folder, stitch=None):
    return init_model(folder / 'elastic.py', folder / 'elastic.pth', stitch, 'cpu')


def features(model, stitch=None):
    if stitch is not None:
        set_stitch(model, stitch)
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        leaves = tree_leaves(model.extract_feat(images))
    return [t for t in leaves if isinstance(t, torch.Tensor)]


def all_equal(found, wanted):
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize('task', TASKS)
def test_make_elastic_every_task_unchanged_at_largest_budget(trained, tmp_path, task):
    files, lines = trained(task), []
    results = make_elastic(*files, tmp_path, say=lines.append, **OPTIONS)
    branches = f'PlainViT with {2 * DEPTH} branches'
    assert lines[0] == f'{branches}: features are equal bit for bit'
    assert StitchTable.read(tmp_path / 'stitches.json') == results
    assert 1 < len(results) <= 5
    assert [*results] == [*range(len(results))]
    flops = [row.flops for row in results.rows]
    assert flops == sorted({*flops}, reverse=True)
    found = re.findall(r'(\d+)% of the FLOPs', '\n'.join(lines))
    assert [round(100 * n / flops[0]) for n in flops[1:]] == [*map(int, found)]
    assert all(row.latency > 0 for row in results.rows)
    for name in ('pareto.png', 'predictions.png', 'search.json'):
        assert (tmp_path / name).stat().st_size
    network, elastic = init_model(*files, device='cpu'), load(tmp_path)
    assert all_equal(features(elastic, 0), features(network))
    assert not all_equal(features(elastic, 1), features(network))
    assert find_stitched_backbone(elastic).stitching_initialized
    assert elastic.dataset_meta == network.dataset_meta
    # The files hold what was tested, and the results what a test of the files finds.
    paths = (tmp_path / f'elastic.{end}' for end in ('py', 'pth'))
    tested = run.results_of(run.test(*paths, tmp_path / 'again', verbose=True))
    assert tested.digest == results.digest
    assert [
        replace(row, latency=None, setup=None) for row in results.rows
    ] == tested.rows


def test_make_elastic_estimates_time_from_steps_that_still_run(
    trained, tmp_path, quick, monkeypatch
):
    steps, clock = 2 * DEPTH, count(step=60)
    monkeypatch.setattr(job_module, 'time', SimpleNamespace(monotonic=clock.__next__))
    lines = quick(*trained(), tmp_path, budgets='50%')
    found = [line for line in lines if re.match(f' +[0-9]+/{steps}, ', line)]
    # Each line took a minute. After step i, all later ones run for the predictions.
    runs = [steps - i for i in range(steps)]
    left = [(i + 1) * sum(runs[i + 1 :]) / sum(runs[: i + 1]) for i in range(steps)]
    found = [int(re.search(r'ETA (\d+):', line)[1]) for line in found]
    assert found == [int(minutes) for minutes in left]


def test_make_elastic_reads_base_once_and_writes_once(trained, tmp_path, monkeypatch):
    def calls(owner, name):
        real = getattr(owner, name)
        spy = create_autospec(real, side_effect=real)
        monkeypatch.setattr(owner, name, spy)
        return spy.call_args_list

    files, written = trained(), [tmp_path / n for n in ('elastic.pth', 'stitches.json')]
    loaded, built = calls(torch, 'load'), calls(EncoderDecoder, '__init__')
    saved, drawn = calls(StitchTable, 'save'), calls(tables, 'plot_pareto')
    make_elastic(*files, tmp_path, plans=PLANS, say=lambda line: None, **OPTIONS)
    read = [call.args[0] for call in loaded]
    assert [p for p in read if p in (files[1], written[0])] == [files[1]]
    assert len(built) == 1  # of the given config
    assert [call.args[1] for call in saved] == [written[1]]
    assert [call.args[1:] for call in drawn] == [(tmp_path / 'pareto.png', 'latency')]


@pytest.mark.slow
def test_make_elastic_files_work_in_tools(trained, run_here, quick, tmp_path):
    """One file with all weights works in the package itself, too."""
    from mmseg.apis import init_model as by_mmseg

    files, (a, b) = trained(), (tmp_path / 'a', tmp_path / 'b')
    quick(*files, a, plans=PLANS)
    quick(*files, b, plans=PLANS, whole=True)
    added, one = (torch.load(f / 'elastic.pth')['state_dict'] for f in (a, b))
    joined = load_weights_only(a / 'elastic.pth')['state_dict']
    assert one.keys() == joined.keys()
    assert all(torch.equal(v, joined[k]) for k, v in one.items())
    assert len(added) == len(one) - len(torch.load(files[1])['state_dict'])
    theirs = by_mmseg(*(str(b / f'elastic.{e}') for e in ('py', 'pth')), device='cpu')
    assert all_equal(features(theirs), features(init_model(*files, device='cpu')))
    paths = [a / f'elastic.{end}' for end in ('py', 'pth')]
    with pytest.raises(ValueError, match='no weights of the network'):
        by_mmseg(*map(str, paths))
    for i in (0, 1, 2):
        out = tmp_path / f'out{i}'
        args = '--stitch-id', i, '--out', out, '--format', 'mm'
        run_here('export_stitch.py', *paths, *args)
        alone = init_model(*(out / f'stitch_{i}.{e}' for e in ('py', 'pth')))
        assert all_equal(features(alone.cpu()), features(load(a, i)))
        manifest = json.loads((out / 'manifest.json').read_text())
        assert manifest['stitches'][0]['route'] == ('network', *PLANS)[i]
    printed = run_here('test.py', *paths, '--stitch-id', 2, '--work-dir', tmp_path)
    assert '0:0/0 1:1/16' in printed


def test_make_elastic_unlabelled_images_of_any_sizes(
    trained, quick, tmp_path, monkeypatch
):
    for i, size in enumerate([(64, 64), (64, 64), (48, 80), (90, 50)]):
        path = tmp_path / 'images' / 'ab'[i % 2] / f'{i}.{["png", "JPG"][i % 2]}'
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.random.randint(0, 256, (*size, 3), np.uint8))
    (tmp_path / 'images' / 'notes.txt').write_text('no image')
    # The images of the test set are no files, as this pipeline expects.
    monkeypatch.setattr(MODULE, 'try_test', lambda *args: None)
    cfg = Config.fromfile(trained()[0])
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler'):
        cfg[key] = None  # no training set is needed
    cfg.test_dataloader.dataset.pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=(64, 64), keep_ratio=True),
        dict(type='PackSegInputs'),
    ]
    args = cfg, trained()[1], tmp_path
    lines = quick(*args, images=tmp_path / 'images', plans=PLANS)
    assert f'Measuring {2 * DEPTH} steps of the network on 4 images' in lines
    elastic = Config.fromfile(tmp_path / 'elastic.py')
    assert elastic.model.backbone.chains == [*PLANS]
    with pytest.raises(ValueError, match='missing.*argument: images'):
        quick(*args, images=tmp_path / 'missing')
    with pytest.raises(ValueError, match='train_dataloader.*argument: images'):
        quick(*args)


@pytest.mark.parametrize(
    'classifies, tokens, fitted, compared',
    [
        (False, [1024] * 3, 30, 5),  # ten tokens for each of 3072 channels
        (False, [2000] * 3, 24, 4),
        (False, [205] * 3, 150, 24),
        (True, [1025] * 3, 500, 24),
    ],
)
def test_make_elastic_numbers_of_images(classifies, tokens, fitted, compared):
    class View(list):
        widths = [12, 3072, 1]  # the last step cannot be narrow

    job = object.__new__(job_module.Job)
    job.view = View(SimpleNamespace(group=n) for n in (64, 1, 9999))
    job.classifies, job.tokens = classifies, tokens
    assert job._enough_images(24) == fitted
    assert job._num_compared() == compared


def test_make_elastic_resumes_and_reuses_measurements(trained, quick, tmp_path):
    files, (a, b) = trained(), (tmp_path / 'a', tmp_path / 'b')

    def measured(lines):
        return sum(': divergence' in line for line in lines)

    assert measured(quick(*files, a, budgets='75%')) == 2 * DEPTH
    wanted = json.loads((a / 'search.json').read_text())
    b.mkdir()
    some = dict(wanted, steps=wanted['steps'][:5])
    (b / 'search.json').write_text(json.dumps(some))
    assert measured(quick(*files, b, budgets='75%')) == 2 * DEPTH - 5
    assert json.loads((b / 'search.json').read_text()) == wanted
    before, after = (load_weights_only(f / 'elastic.pth') for f in (a, b))
    pairs = before['state_dict'].items(), after['state_dict']
    assert all(torch.equal(value, pairs[1][key]) for key, value in pairs[0])
    lines = quick(*files, a, budgets='80%,60%')
    found = re.search(r'Fitting (\d) chains on 6 images', '\n'.join(lines))
    assert measured(lines) == 0
    assert 2 <= int(found[1]) <= 6  # at most three sizes per budget
    assert measured(quick(*files, a, budgets='60%', seed=1)) == 2 * DEPTH
    mean = {'model.data_preprocessor.mean': [9.0, 9.0, 9.0]}
    lines = quick(*files, a, budgets='60%', seed=1, cfg_options=mean)
    assert measured(lines) == 2 * DEPTH


@pytest.mark.parametrize('task', ['seg', pytest.param('depth', marks=SLOW)])
def test_make_elastic_weighs_tokens_of_segmentors(
    trained, quick, tmp_path, monkeypatch, task
):
    seen = []

    def weights(model, batches):
        seen.append(len(batches))
        return lambda i, state: torch.ones(state.tokens.shape[:2])

    monkeypatch.setattr(job_module, 'RareClassWeights', weights)
    quick(*trained(task), tmp_path, plans=['2:0/0 3:0/0'])
    assert seen == [6] * (task == 'seg')


def test_make_elastic_keeps_the_chain_that_diverges_least(
    trained, tmp_path, monkeypatch
):
    """Of those fitted for a budget, on other images; with its fitted layers."""
    jobs, lines = [], []
    monkeypatch.setattr(job_module.Job, 'evaluate', lambda job: jobs.append(job))
    monkeypatch.setattr('snnet_mm.elastic.choosing.WORTH', 1e9)
    options = OPTIONS | dict(budgets='70%,40%', sizes=(0.75, 0.5))
    make_elastic(*trained(), tmp_path, say=lines.append, **options)
    pattern, kept = r'^  [0-9.]+\w \(\d+% of the FLOPs\): (.*)$', []
    chosen = [m[1] for line in lines if (m := re.search(pattern, line))]
    judged = [line for line in lines if line.startswith('  divergence')]
    for divergences, chain in zip(judged, chosen, strict=True):
        values = {s: float(v) for v, s in re.findall(r'(\S+) at (\S+)x', divergences)}
        assert len(values) > 1
        assert {*values} <= {'1', '0.75', '0.5'}
        best = min(values, key=values.get)
        assert chain.startswith('0:' if best == '1' else f'{best}x')
        kept.append(chain)
    ((job,), space) = jobs, load(tmp_path).backbone.space
    routes = [space.describe(stitch) for stitch in space]
    flops = [job.costs[s.scale].of('flops', space.plans[s.id]) for s in space]
    for found, most in zip(flops[1:], (0.7, 0.4), strict=True):
        assert 0 < found <= most * flops[0]
    assert routes == ['network', *kept]


@pytest.mark.parametrize(
    'options, words',
    [
        (dict(budgets=2), 'budgets=2 is invalid'),
        (dict(budgets='50%,'), "budgets=''"),
        (dict(budgets='1%'), 'at least .*: 0:.*argument: budgets'),
        (dict(plans=['0:3/8']), r"plans\[0\]='0:3/8' .*2/0 to 128"),
        (dict(plans=['1:0/0', '1:2/128']), r'plans\[1\]=.*fewer units'),
        (dict(plans=['1:2/127'], num_images=1), 'num_images=1 .* 20 or more'),
        (dict(budgets='50%', num_images=1), 'num_images=1 .* 20 or more'),
        (dict(num_images=0), 'argument: num_images'),
        (dict(sizes=0.5), 'sizes=0.5 is invalid'),
        (dict(sizes=[1, 1.2]), r'sizes=\[1, 1.2\] .* above 0 and up to 1'),
        (dict(plans=['1.5x: 1:0/0']), r"plans\[0\]='1.5x: 1:0/0'"),
        (dict(plans=['1x']), r'plans\[0\]=.*fewer units'),
    ],
)
def test_make_elastic_wrong_options_raise(trained, quick, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        quick(*trained(), tmp_path, **options)
    assert not (tmp_path / 'elastic.pth').exists()
    # Before anything is measured.
    assert 'budgets' not in options or not (tmp_path / 'search.json').exists()


def test_make_elastic_out_of_memory_names_stitch(trained, quick, tmp_path, monkeypatch):
    def exhausted(*args, **kwargs):
        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB. GPU')

    monkeypatch.setattr(job_module, 'fit_in_turn', exhausted)
    words = r'stitch 0, batches of up to 8: .* allocate 2 GiB \(option: --device\)$'
    with pytest.raises(ValueError, match=words):
        quick(*trained(), tmp_path, plans=['2:0/0 3:0/0'])
    assert not (tmp_path / 'elastic.pth').exists()


def test_make_elastic_wrong_checkpoints_raise(trained, quick, tmp_path):
    (config, network), key = trained(), 'backbone.blocks.1.mlp.fc1.weight'
    url, path = 'https://download.openmmlab.com/x/y.pth', tmp_path / 'elastic.pth'
    with pytest.raises(ValueError, match=f'{url} .*argument: checkpoint'):
        quick(config, url, tmp_path / 'out')
    assert not (tmp_path / 'out' / 'elastic.py').exists()
    loaded = torch.load(network)
    weights = loaded['state_dict']
    weights[key].view(-1)[3] = torch.nan
    torch.save(loaded, path)
    with pytest.raises(ValueError, match=f'{key} that is not finite'):
        quick(config, path, tmp_path / 'out')
    with pytest.raises(ValueError, match='elastic.pth.*argument: work_dir'):
        quick(config, path, tmp_path)  # the network would be written over
    del weights[key]
    torch.save(loaded, path)
    with pytest.raises(ValueError, match='fc1.weight'):
        quick(config, path, tmp_path / 'out')


def test_make_elastic_warns_of_too_few_tokens(trained, quick, tmp_path):
    """Fewer than ten per unknown of the widest fit of all chains.

    Here one of 128 neurons on 65 tokens each.
    """
    lines = quick(*trained(), tmp_path, plans=['1:2/100', '1:2/8'], num_images=2)
    (warning,) = (line for line in lines if 'Warning' in line)
    assert 'num_images=2; better 16 or more' in warning
    assert 'in block 1, has 100 unknowns, and 2 images have 130 tokens' in warning
    lines = quick(*trained(), tmp_path, plans=['1:2/8 3:0/0'], num_images=5)
    assert not [line for line in lines if 'Warning' in line]


def test_make_elastic_of_smaller_images_alone_fits_nothing(trained, quick, tmp_path):
    quick(*trained(), tmp_path, plans=['0.75x', '0.5x'], num_images=1)
    model, size = load(tmp_path, stitch=2), (32, 32)
    assert not model.backbone.stitching_layers
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    small = F.interpolate(images, size, mode='bilinear', antialias=True)
    with torch.no_grad():
        found = model.backbone(images)
        set_stitch(model, 0)
        assert all_equal(found, model.backbone(small))


def test_make_elastic_model_that_wrapper_trained(trained, quick, tmp_path):
    config, checkpoint = trained()
    cfg = Config.fromfile(config)
    cfg.model = dict(type='SandwichWrapper', model=cfg.model)
    quick(cfg, checkpoint, tmp_path, plans=['1:0/0'])
    assert Config.fromfile(tmp_path / 'elastic.py').model.type == 'EncoderDecoder'
    with pytest.raises(ValueError, match="'ElasticBackbone'.*backbone.type"):
        quick(tmp_path / 'elastic.py', tmp_path / 'elastic.pth', tmp_path / 'again')


def test_make_elastic_of_an_encoder_needs_no_labels(tmp_path):
    """SAM with its neck, by the config of the page."""
    pytest.importorskip('mmpretrain')
    page = Path(__file__).parents[2] / 'docs/how_to/elastic.md'
    (code,) = re.findall(r'```python\n(_base_ =.*?)```', page.read_text(), re.DOTALL)
    (tmp_path / 'sam.py').write_text(code.replace('(1024, 1024)', '(64, 64)'))
    cfg = Config.fromfile(tmp_path / 'sam.py')
    cfg.model.backbone.update(SAM, out_channels=8)
    init_default_scope('mmpretrain')
    network = disturb(MODELS.build(cfg.model)).eval()
    torch.save(dict(state_dict=network.state_dict()), tmp_path / 'sam.pth')
    (tmp_path / 'photos').mkdir()
    for i in range(12):
        image = np.random.randint(256, size=(64, 64, 3), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / f'photos/{i}.png'), image)
    options = OPTIONS | dict(images=tmp_path / 'photos', plans=['0:1/8', '0:1/4 1:0/8'])
    results = make_elastic(cfg, tmp_path / 'sam.pth', tmp_path / 'elastic', **options)
    assert results.metric == 'agreement'
    scores = [row.metrics['agreement'] for row in results.rows]
    assert scores[0] == 1
    assert all(0 < score < 1 for score in scores[1:])
    assert StitchTable.read(tmp_path / 'elastic/stitches.json').rows == results.rows
    elastic, images = load(tmp_path / 'elastic'), torch.randn(2, 3, 64, 64)
    for i in (0, 1):
        set_stitch(elastic, i)
        (found,), (wanted,) = elastic(images), network(images)
        assert found.shape == (2, 8, 4, 4)
        assert found.equal(wanted) == (i == 0)


def measured(job):
    """Report milliseconds, without a test."""
    results = job._measure()
    metrics = {row.id: dict(mIoU=50 - row.id) for row in results.rows}
    job._print(results.with_metrics(metrics))
    return results


@pytest.fixture
def in_runtime(monkeypatch):
    """Make a network elastic for milliseconds that follow its FLOPs.

    Graphs take 1 ms and 2 ns per FLOP, in int8 a ``share`` of this; all but the probes
    take ``more``. Return the table, and what was said.
    """
    pytest.importorskip('onnxruntime')
    monkeypatch.setattr(job_module.Job, 'evaluate', measured)

    def run(*args, share=0.4, more=1.0, **kwargs):
        timed, lines = [], []

        def times(graphs, chains, ids, precisions):
            costs = cost_table(elastic_model(graphs.network, chains), graphs.size)
            slower = more if timed else 1
            timed.append(ids)
            return {
                (p, i): (1 + 2e-6 * costs[i].flops)
                * (slower if i else 1)
                * (share if p == 'int8' else 1)
                for p in precisions
                for i in ids
            }

        monkeypatch.setattr(runtime_costs.GraphTimes, '_run', times)
        options = OPTIONS | dict(runs_in='runtime', say=lines.append)
        return make_elastic(*args, **options | kwargs), lines

    return run


def budgets_of(lines):
    """Budgets, their milliseconds and precisions, as said."""
    pattern = r'^  (\S+)ms: (?:stitch \d|the network) in (\w+), (\S+) ms$'
    found = re.findall(pattern, '\n'.join(lines), re.MULTILINE)
    return [(float(limit), float(ms), precision) for limit, precision, ms in found]


@pytest.mark.parametrize('more', [1, 1.3, 0.8])
def test_make_elastic_meets_milliseconds_of_the_runtime(
    trained, in_runtime, tmp_path, more
):
    """Also where graphs take other times than the probes let expect."""
    budgets = dict(budgets='8ms,5ms', sizes=(1, 0.5))
    results, lines = in_runtime(*trained(), tmp_path, share=9, more=more, **budgets)
    found = budgets_of(lines)
    assert [limit for limit, _, _ in found] == [8, 5]
    for limit, ms, precision in found:
        assert LEAST * limit <= ms <= MOST * limit
        assert precision == 'fp32'  # int8 is slower here
    rows = [row.latency for row in results.rows]
    whole = 1 + 2e-6 * results[0].flops
    assert rows == pytest.approx([whole, *(ms for _, ms, _ in found)], rel=1e-2)
    for row in results.rows[1:]:
        assert row.latency == pytest.approx(more * (1 + 2e-6 * row.flops))
    setup = results.shared('setup')
    assert setup.dtype == 'fp32'
    assert re.search(r', 1 thread, onnxruntime \d', setup.device)
    corrected = sum('ms, predicted ' in line for line in lines)
    assert bool(corrected) == (more != 1)


def test_make_elastic_chooses_int8_where_it_is_better(trained, in_runtime, tmp_path):
    options = dict(budgets='6ms,3ms', sizes=(1,), threads=2)
    lines = in_runtime(*trained(), tmp_path, **options)[1]
    assert sum('Exporting and timing' in line for line in lines) == 2
    assert budgets_of(lines)[0] == (6, 4.64, 'int8')  # the network itself
    limit, ms, precision = budgets_of(lines)[1]
    assert (limit, precision) == (3, 'int8')
    assert LEAST * 3 <= ms <= MOST * 3
    results, again = in_runtime(*trained(), tmp_path, **options)
    assert budgets_of(again) == budgets_of(lines)
    assert not [x for x in again if 'timing' in x or ': divergence' in x]
    assert [row.precision for row in results.rows] == ['fp32', 'int8']
    times = [1 + 2e-6 * row.flops for row in results.rows]
    found = [row.latency for row in results.rows]
    assert found == pytest.approx([times[0], 0.4 * times[1]])
    assert ', 2 threads, onnxruntime' in results[1].setup.device
    search = json.loads((tmp_path / 'search.json').read_text())
    assert search['scales'] == {'1': 0}
    assert 0 < search['int8']['1'] < 0.1


@pytest.mark.parametrize(
    'options, words',
    [
        (dict(runs_in='gpu'), "for='gpu' is invalid"),
        (dict(runs_in='pytorch', threads=2), 'threads=2 .* none without --for runtime'),
        (dict(threads=0), 'threads=0 is invalid'),
        (dict(device='cuda'), "device='cuda' is invalid: expected 'cpu'"),
        (dict(budgets='0.1ms'), r"='0.1ms' .* at least 1\.\S+ms, .* in int8"),
        (dict(budgets='20ms'), r"='20ms' .* below 11\.6\d*ms, the cost"),
    ],
)
def test_make_elastic_wrong_options_of_the_runtime(
    trained, in_runtime, tmp_path, options, words
):
    with pytest.raises(ValueError, match=words):
        in_runtime(*trained(), tmp_path, sizes=(1,), **options)
    assert not (tmp_path / 'elastic.pth').exists()


def test_make_elastic_network_in_int8_may_meet_all_budgets(
    trained, in_runtime, tmp_path
):
    results, lines = in_runtime(*trained(), tmp_path, budgets='8ms', sizes=(1,))
    assert budgets_of(lines) == [(8, 4.64, 'int8')]
    assert [*results] == [0]
    assert all_equal(features(load(tmp_path)), features(init_model(*trained())))


def test_make_elastic_warns_of_milliseconds_that_no_graph_takes(
    trained, in_runtime, tmp_path
):
    """Where the prediction let expect one that does."""
    options = dict(budgets='3.8ms', sizes=(1,), share=9, more=2)
    results, lines = in_runtime(*trained(), tmp_path, **options)
    ms = results[1].latency
    assert ms > 3.8
    assert f'Warning: 3.8ms: {ms:.3g} ms in ONNX Runtime at best' in lines


@pytest.mark.parametrize('options', [dict(budgets='50%'), dict(plans=['1:0/0'])])
def test_make_elastic_other_chains_for_the_runtime_are_in_fp32(
    trained, in_runtime, tmp_path, options
):
    results, lines = in_runtime(*trained(), tmp_path, sizes=(1,), **options)
    assert [row.precision for row in results.rows] == ['fp32'] * 2
    times = [1 + 2e-6 * row.flops for row in results.rows]
    assert [row.latency for row in results.rows] == pytest.approx(times)
    assert budgets_of(lines) == []


@pytest.mark.slow
def test_make_elastic_bundles_take_the_milliseconds(trained, tmp_path, monkeypatch):
    """With graphs of onnxruntime, whose times follow their FLOPs."""
    pytest.importorskip('onnxruntime')

    def measure(runtime, keys):
        share, flops = dict(fp32=1, int8=0.4), runtime._column('flops')
        return {key: share[key[0]] * (1 + 2e-6 * flops[key]) for key in keys}

    monkeypatch.setattr(StitchRuntime, '_measure', measure)
    monkeypatch.setattr(job_module.Job, 'evaluate', lambda self: self._measure())
    options = OPTIONS | dict(budgets='6ms,3ms', sizes=(1,), runs_in='runtime')
    results = make_elastic(*trained(), tmp_path, **options)
    assert [row.precision for row in results.rows] == ['fp32', 'int8']
    cfg, folder = Config.fromfile(tmp_path / 'elastic.py'), tmp_path / 'bundle'
    exporter = StitchExporter(cfg, load(tmp_path), folder)
    exporter.export_bundle('all', precisions=('fp32', 'int8'))
    for precision, budget, stitch in (('int8', 6, 0), ('int8', 3, 1), ('fp32', 12, 0)):
        runtime = StitchRuntime(folder, threads=1, precision=precision)
        assert runtime.set_budget(f'{budget}ms') == stitch
        ms = runtime.latencies()[precision, stitch]
        assert ms <= budget
        if results[stitch].precision == precision:
            assert ms == pytest.approx(results[stitch].latency)
