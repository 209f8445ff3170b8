import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from config_models import build_on_meta, load
from mmengine.config import DictAction
from mmengine.optim import build_optim_wrapper
from mmengine.registry import TASK_UTILS, init_default_scope

from snnet_mm.models import find_stitched_backbone
from snnet_mm.models.wrappers.sandwich_wrapper import SandwichWrapper
from snnet_mm.stitching import StitchResults
from snnet_mm.utils import load_config

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'reproduce.py'
DATA = ROOT / 'tests' / 'data'
WHOLE = SimpleNamespace(iters=0, small=False)
TESTED = 'test_dataloader.dataset.indices=4'
STITCH_LORA = 'esta/fgvc/snnetv1-augreg-ti-s-b-stitch-lora_1xb64-100e_cub-224x224.py'
PUBLISHED = {
    'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k': 'ade20k_setr_deit3_s_l',
    'imagenet/published/snnetv2-deit3-s-l_in1k': 'imagenet_deit3_s_l',
    'imagenet/published/snnetv1-deit-ti-s-b_in1k': 'imagenet_v1_deit_ti_s_b',
    'imagenet/published/snnetv1-swin-ti-s-b_in1k': 'imagenet_v1_swin_ti_s_b',
    'imagenet/published/snnetv1-resnet18-50_in1k': 'imagenet_v1_resnet18_50',
    'imagenet/published/snnetv1-resnet18-swin-ti_in1k': 'imagenet_v1_resnet18_swin_ti',
    'imagenet/published/snnetv1-levit-192-256_in1k': 'imagenet_v1_levit',
}


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location('reproduce', TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(tool):
    return yaml.safe_load(tool.LIST.read_text())


def test_the_pages_are_the_list(tool):
    pages = tool.pages(read(tool))
    assert len(pages) == 5
    for path, text in pages.items():
        assert path.read_text() == text


def test_items_have_configs_that_exist(tool):
    for paper in read(tool)['papers']:
        for item in paper['items']:
            assert item in tool.find_items(
                read(tool), f'{paper["name"]} {item["ids"][0]}'
            )
            for small in (False, True):
                if item.get('small' if small else 'train'):
                    jobs = tool.find_jobs([item], small)
                    varied = [job.variant for job in jobs if job.variant]
                    assert {*varied} == {*item.get('variants', {})}
            if 'published' in item:
                assert (ROOT / 'configs' / item['published']).exists()


def call(*args, **kwargs):
    command = [sys.executable, TOOL, *args]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def test_commands_of_a_table_are_printed(tmp_path):
    done = call('SN-Netv2 table 2', '--launcher', 'slurm', '--gpus', '4', '--dry-run')
    trains = [line for line in done.stdout.splitlines() if 'slurm_train.sh' in line]
    names = ['snnetv1-deit3-s-l_', 's-l-tws_', 's-l-tws-ros_', 'snnetv2-deit3-s-l_']
    assert len(trains) == len(names)
    for line, name in zip(trains, names, strict=True):
        assert line.startswith('env GPUS=4 bash tools/slurm_train.sh gpu ')
        assert name in line
        assert line.endswith('--resume')
    assert done.stdout.count('--stitch-id all') == 4
    done = call('SN-Netv2 table 2', '--small', '--job', '0', '--dry-run')
    first, second = done.stdout.splitlines()
    assert 'tools/train.py configs/camvid/setr-naive_vit-fast_' in first
    assert '--stitch-id' not in second
    for wrong, message in {
        ('SN-Netv2 table 9',): "'SN-Netv2 table 9' is none of the tables",
        ('SN-Netv2 table 1', '--small'): 'There is no small run of it',
        ('SN-Netv2 table 2', '--job', '4'): '--job=4 is none of 0 to 3',
    }.items():
        assert message in call(*wrong).stderr
    assert 'SN-Netv2 table 2: not run here' in call('--list').stdout


def test_small_runs_begin_with_each_other(tool, monkeypatch, capsys):
    options = 'SN-Netv1 figure 9', '--small', '--iters', '7', '--dry-run'
    monkeypatch.setattr(sys, 'argv', ['reproduce.py', *options])
    tool.main()
    lines = capsys.readouterr().out.splitlines()
    trained = [line for line in lines if 'train.py' in line]
    folders = [line.split('--work-dir ')[1].split()[0] for line in trained]
    assert len(set(folders)) == len(folders) == 3 + 4
    assert all(folder.startswith('work_dirs/7-iterations/') for folder in folders)
    assert all('--iters 7' in line for line in trained)
    given = [line.partition('--cfg-options ')[2].split() for line in trained]
    short = {'train_cfg.val_begin=8', 'train_dataloader.batch_size=4'}
    assert all({*options} == short | {TESTED} for options in given[:3])
    assert all(short < {*options} and TESTED not in options for options in given[3:])
    assert 'default_hooks.stitch_init.num_images=4' in given[3]
    for key in ('anchors.2', 'anchor_heads.2'):  # of the backbone and of the head
        (value,) = {o.split('=')[1] for o in given[3] if f'{key}.' in o}
        assert value == f'{folders[2]}/iter_7.pth'
    assert folders[6].endswith('-layers-only')
    assert [g[0] for g in given[4:]] == [
        'model.backbone.direction=SF',
        'model.backbone.nearest=False',
        'optim_wrapper.paramwise_cfg.custom_keys.anchor.lr_mult=0',
    ]
    tests = [line for line in lines if 'test.py' in line]
    assert ['--limit 4' in line for line in tests] == [False] * 3 + [True] * 4


def test_variants_are_settings_of_the_config(tool):
    args, papers, models, samplers = WHOLE, read(tool), {}, {}
    items = tool.find_items(papers, 'SN-Netv1 figure 9')
    items += tool.find_items(papers, 'SN-Netv1 supplement')
    items += tool.find_items(papers, 'ESTA figure 12')
    items += tool.find_items(papers, 'ESTA figure 6')
    for job in tool.find_jobs(items, small=False):
        if '-deit-' in job.name or '_cub-' in job.name:
            _, *found = tool.settings(job, args) or [None]
            assert bool(found) == bool(job.options)
            cfg = load_config(str(job.config), dict(map(parsed, found)))
            models[job.variant] = cfg.model.model.backbone
            samplers[job.variant] = cfg.default_hooks.stitch_sampling.sampler
    assert models['no-bias'].plugins is None
    alone = load_config(str(ROOT / 'configs' / STITCH_LORA)).model.model.backbone
    assert models['stitch-lora'] == alone
    assert models['slow-to-fast'].direction == 'SF'
    assert models['windows-of-3'].kernel == models['windows-of-3'].stride == 3
    assert [a.init_cfg for a in models['from-scratch'].anchors] == [None] * 3
    assert '50-images' in models
    assert models['full-sl'].stitching_layer == dict(type='StitchingLayer')
    assert [a.lora for a in models['full'].anchors] == [None] * 3
    assert samplers['uniform'].sampler is None


def test_adapters_train_as_many_parameters_as_low_rank_updates(tool):
    """Biases of the adapters aside (ESTA, figure 7, left)."""
    jobs = tool.find_jobs(tool.find_items(read(tool), 'ESTA figure 7'), small=False)
    jobs = [job for job in jobs if '_cub-' in job.name and 'ranks' not in job.variant]
    assert [job.variant for job in jobs] == ['', 'adapter', 'adaptformer']
    numbers = []
    for job in jobs:
        _, *options = tool.settings(job, WHOLE) or [None]
        cfg = load_config(str(job.config), dict(map(parsed, options)))
        init_default_scope(cfg.default_scope)
        anchors = find_stitched_backbone(build_on_meta(cfg)).anchors
        weights = [dict(a.named_parameters()) for a in anchors]
        numbers.append(
            [
                sum(p.numel() for p in w.values() if p.requires_grad and p.ndim > 1)
                for w in weights
            ]
        )
        kinds = {
            a.blocks[0].mlp.adapter.parallel for a in anchors if 'adapt' in job.name
        }
        assert kinds == ({job.variant == 'adaptformer'} if job.variant else set())
    assert numbers[0] == numbers[1] == numbers[2] == [12 * 6 * 32 * 192] * 3


def test_stitches_of_table_1_are_trained_and_tested_alone(tool, monkeypatch, capsys):
    args = ['reproduce.py', 'SN-Netv1 table 1 individual', '--dry-run']
    monkeypatch.setattr(sys, 'argv', args)
    tool.main()
    tests = capsys.readouterr().out.splitlines()[3::2]
    found = [line.split('--stitch-id ')[1].split()[0] for line in tests]
    name = 'imagenet/published/snnetv1-deit-ti-s-b_in1k.json'
    results = StitchResults.read(ROOT / 'configs' / name)
    scores = [results.scores()[int(stitch_id)] for stitch_id in found]
    assert scores == [72.6, 76.48, 78.2, 79.96, 81.502, 81.962]


def test_stitching_layers_alone_have_a_rate(tool):
    items = tool.find_items(read(tool), 'SN-Netv1 figure 9')
    jobs = tool.find_jobs(items, small=True)
    (job,) = (job for job in jobs if job.variant == 'layers-only')
    _, *options = tool.settings(job, WHOLE)
    cfg, model = load(str(job.config.relative_to(ROOT / 'configs')))
    wrapper = cfg.optim_wrapper.to_dict()
    keys = wrapper['paramwise_cfg']['custom_keys']
    for option in options:
        (key, value) = parsed(option.split('custom_keys.')[1])
        name, setting = key.split('.')
        keys.setdefault(name, {})[setting] = value
    groups = build_optim_wrapper(model, wrapper).param_groups
    trained = {id(p) for group in groups if group['lr'] for p in group['params']}
    names = {name for name, p in model.named_parameters() if id(p) in trained}
    assert names
    assert all(name.startswith('backbone.stitching_layers.') for name in names), names


def test_the_sandwich_of_the_supplement_is_one(tool):
    items = tool.find_items(read(tool), 'SN-Netv1 supplement D')
    plain, job = tool.find_jobs(items, small=False)
    assert (plain.variant, job.variant) == ('', 'sandwich')
    _, *options = tool.settings(job, WHOLE)
    cfg = load_config(str(job.config), dict(map(parsed, options)))
    init_default_scope(cfg.default_scope)
    model = build_on_meta(cfg)
    assert type(model) is SandwichWrapper
    sampler = cfg.default_hooks.stitch_sampling.sampler
    space = find_stitched_backbone(model).space
    built = TASK_UTILS.build(sampler, default_args=dict(costs=None, space=space))
    slowest, fastest, stitch = built.sample(0)
    run = {segment.anchor for segment in space[stitch].segments}
    assert (slowest, fastest) == (max(run), min(run))
    assert [*model.on_stitches([space[i] for i in (slowest, fastest, stitch)])] == [
        'slowest.',
        'fastest.',
        'stitch0.',
    ]


def parsed(option):
    key, value = option.split('=')
    return key, DictAction._parse_iterable(value)


def test_what_was_done_is_not_done_again(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = []

    def run(command):
        ran.append(' '.join(command))
        work = Path(command[command.index('--work-dir') + 1])
        if 'test.py' in command[1]:
            (work / '1').mkdir(parents=True)
            name = 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k.json'
            text = (ROOT / 'configs' / name).read_text()
            (work / '1' / 'stitches.json').write_text(text)
        else:
            work.mkdir(parents=True)
            (work / 'last_checkpoint').write_text('iter_5.pth')

    monkeypatch.setattr(tool, 'run', run)
    monkeypatch.setattr(tool, 'draw', lambda *args: ran.append('drawn'))
    args = ['reproduce.py', 'SN-Netv2 table 2', '--job', '3']
    for number in (3, 4):
        monkeypatch.setattr(sys, 'argv', args)
        tool.main()
        assert len(ran) == number
    assert 'tools/train.py' in ran[0]
    assert 'iter_5.pth' in ran[1]
    found = capsys.readouterr().out
    assert 'ours:  45.57 - 51.35 mIoU at 33.5 - 363 GFLOPs' in found
    assert re.search(r'paper: .*45\.6 - 51\.4', found)


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_results_are_the_authors(name):
    results = StitchResults.read(ROOT / 'configs' / f'{name}.json')
    theirs = json.loads((DATA / f'{PUBLISHED[name]}.json').read_text())['stitches']
    if isinstance(theirs, list):  # in the form of ours
        theirs = {str(row['id']): row | row['metrics'] for row in theirs}
    assert {str(row.id) for row in results.stitches} == {*theirs}
    for row in results.stitches:
        figures = theirs[str(row.id)]
        assert row.flops == figures['flops']
        keys = ('acc1', 'accuracy/top1', 'mIoU')
        (score,) = (figures[key] for key in keys if key in figures)
        assert row.metrics[results.metric] == score
