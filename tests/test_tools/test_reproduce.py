import json
import re
import runpy
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from config_models import PAPERS, RUNS, build_on_meta, read
from mmengine.registry import init_default_scope
from papers import read_config

from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import StitchTable

reproduce = import_module('reproduce')  # in tools, which config_models finds
ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'reproduce.py'
DATA = ROOT / 'tests' / 'data'
TESTED = 'test_dataloader.dataset.indices=4'
STITCH_LORA = 'esta/fgvc/snnetv1-augreg-ti-s-b-stitch-lora_1xb64-100e_cub-224x224'
SETR = 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k'
PUBLISHED = {
    SETR: 'ade20k_setr_deit3_s_l',
    'imagenet/published/snnetv2-deit3-s-l_in1k': 'imagenet_deit3_s_l',
    'imagenet/published/snnetv1-deit-ti-s-b_in1k': 'imagenet_v1_deit_ti_s_b',
    'imagenet/published/snnetv1-swin-ti-s-b_in1k': 'imagenet_v1_swin_ti_s_b',
    'imagenet/published/snnetv1-resnet18-50_in1k': 'imagenet_v1_resnet18_50',
    'imagenet/published/snnetv1-resnet18-swin-ti_in1k': 'imagenet_v1_resnet18_swin_ti',
    'imagenet/published/snnetv1-levit-192-256_in1k': 'imagenet_v1_levit',
}


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the tool here; return the lines that it printed."""

    def call(*args):
        monkeypatch.setattr(sys, 'argv', ['reproduce.py', *args])
        reproduce.main()
        return capsys.readouterr().out.splitlines()

    return call


def jobs_of(*names, small=False):
    items = [item for name in names for item in reproduce.find_items(PAPERS, name)]
    return reproduce.find_jobs(items, RUNS, small)


def config_of(job):
    """The config of a job, with the settings of its variant."""
    cfg = read_config(job.config, job.options)
    init_default_scope(cfg.default_scope)
    return cfg


def test_items_have_configs_that_exist():
    for paper in PAPERS['papers']:
        for item in paper['items']:
            name = f'{paper["name"]} {item["ids"][0]}'
            assert item in reproduce.find_items(PAPERS, name)
            for small in (False, True):
                if item.get('small' if small else 'train'):
                    jobs = reproduce.find_jobs([item], RUNS, small)
                    varied = [job.variant for job in jobs if job.variant]
                    assert {*varied} == {*item.get('variants', {})}
            if 'published' in item:
                assert (ROOT / 'configs' / item['published']).exists()


def test_commands_of_a_table_are_printed(call):
    options = '--launcher', 'slurm', '--gpus', '4', '--dry-run'
    lines = call('SN-Netv2 table 2', *options)
    trains = [line for line in lines if 'slurm_train.sh' in line]
    names = ['snnetv1-deit3-s-l_', 's-l-tws_', 's-l-tws-ros_', 'snnetv2-deit3-s-l_']
    for line, name in zip(trains, names, strict=True):
        assert re.match(r'env GPUS=4 bash \S*tools/slurm_train.sh gpu ', line)
        assert name in line
        assert ' --resume' in line
    jobs = {line.split(' gpu ')[1].split()[0] for line in trains}
    assert len(jobs) == len(trains)  # names that tell runs apart
    assert sum('--stitch-id all' in line for line in lines) == 4
    first, second = call('SN-Netv2 table 2', '--small', '--job', '0', '--dry-run')
    assert 'configs/camvid/setr-naive_vit-fast_' in first
    assert '--stitch-id' not in second
    for wrong, message in {
        ('SN-Netv2 table 1', '--small'): 'There is no small run of it',
        ('SN-Netv2 table 2', '--job', '4'): '--job=4 is none of 0 to 3',
    }.items():
        with pytest.raises(ValueError, match=message):
            call(*wrong)
    assert any(x.startswith('SN-Netv2 table 2: not run here') for x in call('--list'))


def test_run_is_its_config_with_its_options(call):
    name = 'setr-naive_snnetv2-deit3-s-l-r4_8xb2-80k_coco-stuff10k-512x512'
    train, test = call(f'setr/{name}', '--dry-run', '--launcher', 'pytorch')
    config = f'configs/setr/{name.replace("-r4", "")}.py'
    begin = f'bash tools/dist_train.sh {config} 8 --work-dir work_dirs/{name} --resume '
    assert train == f'{begin}--cfg-options model.backbone.stitching_layer.rank=4'
    assert f' 8 --work-dir work_dirs/{name}/test --stitch-id all ' in test


def test_trained_network_is_also_tested_without_blocks(call):
    lines = call('SN-Netv1 supplement H', '--dry-run')[2:]
    kept = [re.findall(r'kept_blocks=\[(.*?)\]', line) for line in lines]
    assert kept == [[], [], ['6,7,8,9,10,11'], ['0,1,2,3,4,5'], ['0,2,4,6,8,10']]
    assert '/test-every-other' in lines[-1]


def test_a_wrong_name_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['reproduce.py', 'SN-Netv2 table 9'])
    with pytest.raises(SystemExit, match="^Error: 'SN-Netv2 table 9' is none of"):
        runpy.run_path(str(TOOL), run_name='__main__')


def test_small_runs_begin_with_each_other(call):
    lines = call('SN-Netv1 figure 9', '--small', '--iters', '7', '--dry-run')
    trained = [line for line in lines if 'train.py' in line]
    folders = [line.split('--work-dir ')[1].split()[0] for line in trained]
    assert len(set(folders)) == len(folders) == 3 + 4
    assert all(folder.startswith('work_dirs/7-iterations/') for folder in folders)
    assert all('--iters 7' in line for line in trained)
    given = [line.partition('--cfg-options ')[2].split() for line in trained]
    short = {'train_cfg.val_begin=8', 'train_dataloader.batch_size=4'}
    assert {*given[0]} == short | {TESTED}
    assert all({*options} > short | {TESTED} for options in given[1:3])
    assert all(short < {*options} and TESTED not in options for options in given[3:])
    assert 'default_hooks.stitch_init.num_images=4' in given[3]
    for key in ('anchors.2', 'anchor_heads.2'):  # of the backbone and of the head
        (value,) = {o.split('=')[1] for o in given[3] if f'{key}.' in o}
        assert value == f'{folders[2]}/iter_7.pth'
    tests = [line for line in lines if 'test.py' in line]
    assert ['--limit 4' in line for line in tests] == [False] * 3 + [True] * 4


def test_variants_are_settings_of_the_config():
    jobs = jobs_of('SN-Netv1 figure 9', 'ESTA figure 12', 'ESTA figure 6')
    jobs = [job for job in jobs if '-deit-' in job.name or '_cub-' in job.name]
    configs = {job.variant: config_of(job) for job in jobs}
    models = {name: cfg.model.model.backbone for name, cfg in configs.items()}
    assert models['no-bias'].plugins is None
    assert models['stitch-lora'] == read(STITCH_LORA).model.model.backbone
    assert models['full-sl'].stitching_layer == dict(type='StitchingLayer')  # deleted
    assert configs['uniform'].default_hooks.stitch_sampling.sampler.sampler is None


def test_adapters_train_as_many_parameters_as_low_rank_updates():
    """Biases of the adapters aside (ESTA, figure 7, left)."""
    jobs = jobs_of('ESTA figure 7')
    jobs = [job for job in jobs if '_cub-' in job.name and 'ranks' not in job.variant]
    assert [job.variant for job in jobs] == ['', 'adapter', 'adaptformer']
    for job in jobs:
        model = build_on_meta(config_of(job))
        for anchor in find_stitched_backbone(model).anchors:
            weights = [p for p in anchor.parameters() if p.requires_grad and p.ndim > 1]
            number = sum(p.numel() for p in weights)
            assert number == 12 * 6 * 32 * 192
            mlp = anchor.blocks[0].mlp
            if job.variant:
                assert mlp.adapter.parallel == (job.variant == 'adaptformer')


def test_stitches_of_table_1_are_tested_alone(call):
    tests = call('SN-Netv1 table 1 individual', '--dry-run')[3::2]
    found = [line.split('--stitch-id ')[1].split()[0] for line in tests]
    name = 'imagenet/published/snnetv1-deit-ti-s-b_in1k.json'
    results = StitchTable.read(ROOT / 'configs' / name)
    scores = [results.scores()[int(stitch_id)] for stitch_id in found]
    assert scores == [72.6, 76.48, 78.2, 79.96, 81.502, 81.962]


def test_what_was_done_is_not_done_again(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = []

    def run(command):
        ran.append(' '.join(command))
        work = Path(command[command.index('--work-dir') + 1])
        work.mkdir(parents=True)
        if 'test.py' in command[1]:
            text = (ROOT / 'configs' / f'{SETR}.json').read_text()
            (work / 'stitches.json').write_text(text)
        else:
            (work / 'last_checkpoint').write_text('iter_5.pth')

    monkeypatch.setattr(reproduce, 'run', run)
    monkeypatch.setattr(reproduce, 'draw', lambda *args: ran.append('drawn'))
    for number in (3, 4):
        found = '\n'.join(call('SN-Netv2 table 2', '--job', '3'))
        assert len(ran) == number
    assert 'tools/train.py' in ran[0]
    assert 'iter_5.pth' in ran[1]
    assert 'ours:  45.57 - 51.35 mIoU at 33.5 - 363 GFLOPs' in found
    assert re.search(r'paper: .*45\.6 - 51\.4', found)


def write_results(job, folder, score):
    """Results of a network with two stitches, of the score and one more."""
    rows = [
        dict(id=i, kind='anchor', route='', flops=(i + 1) * 10**9, input_size=(8, 8))
        | dict(metrics={'accuracy/top1': score + i})
        for i in range(2)
    ]
    path = folder / 'work_dirs' / job.name / 'test' / 'stitches.json'
    path.parent.mkdir(parents=True)
    text = dict(stitches=rows, metric='accuracy/top1')
    path.write_text(json.dumps(text | dict(directions={'accuracy/top1': 'higher'})))


def test_seeds_have_folders_of_their_own_and_a_standard_error(
    call, tmp_path, monkeypatch
):
    name = 'bridging/bridge-resnet50-swin-t_8xb64-10e_in1k-224x224'
    lines = call(name, '--seeds', '0', '1', '2', '--dry-run')
    folders = [re.search(r'--work-dir (\S+)', line)[1] for line in lines[::2]]
    names = [f'work_dirs/{Path(name).name}-seed-{seed}' for seed in range(3)]
    assert folders == names
    seeds = [re.search(r'randomness.seed=(\d)', line)[1] for line in lines]
    assert seeds == ['0', '0', '1', '1', '2', '2']
    monkeypatch.chdir(tmp_path)
    jobs = [reproduce.Job(RUNS[name], seed=seed) for seed in range(3)]
    for job, score in zip(jobs, (70, 71, 75), strict=True):
        write_results(job, tmp_path, score)
    ((found, paper, ours),) = reproduce.rows(jobs, PAPERS, SimpleNamespace(iters=0))
    assert found == Path(name).name
    assert '78.2' in paper
    # Standard deviations of sqrt(7), of three seeds.
    assert ours == '72 ± 1.5 - 73 ± 1.5 accuracy/top1 at 1 - 2 GFLOPs'


def test_means_weigh_groups_equally(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *_, item = reproduce.find_items(PAPERS, 'ESTA figure 4')
    jobs, groups = reproduce.find_jobs([item], RUNS, False), item['means']
    assert [len(names) for names in groups.values()] == [7, 4, 8]
    assert {len(jobs), len({job.data for job in jobs})} == {20}  # and CIFAR-100
    scores = dict(zip(groups, (30, 60, 90), strict=True))
    for job in jobs:
        for group, names in groups.items():
            if job.data in names:
                write_results(job, tmp_path, scores[group] + names.index(job.data))
    found = dict(reproduce.means(jobs, [item], SimpleNamespace(iters=0)))
    # Means of 30 to 36, 60 to 63 and 90 to 97, and of these.
    means = dict(natural=33, specialized=61.5, structured=93.5, all=62.667)
    for group, mean in means.items():
        path = f'work_dirs/snnetv1-augreg-ti-s-b-{group}.json'
        ours = found[f'snnetv1-augreg-ti-s-b, mean of {group} ({path})']
        assert ours.startswith(f'{mean:.4g} - {mean + 1:.4g} accuracy/top1 at 1 - 2 ')
        assert StitchTable.read(path).scores()[1] == pytest.approx(mean + 1, abs=1e-3)


@pytest.mark.parametrize('name, data', PUBLISHED.items())
def test_published_results_are_the_authors(name, data):
    results = StitchTable.read(ROOT / 'configs' / f'{name}.json')
    theirs = json.loads((DATA / f'{data}.json').read_text())['stitches']
    if isinstance(theirs, list):  # in the form of ours
        theirs = {str(row['id']): row | row['metrics'] for row in theirs}
    assert {str(row.id) for row in results.rows} == {*theirs}
    for row in results.rows:
        figures = theirs[str(row.id)]
        assert row.flops == figures['flops']
        keys = {'acc1', 'accuracy/top1', 'mIoU'} & {*figures}
        assert [figures[key] for key in keys] == [row.metrics[results.metric]]
