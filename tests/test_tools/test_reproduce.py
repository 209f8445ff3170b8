import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import config_models  # noqa: F401
import pytest
from fronts import print_figures

from snnet_mm.stitching import StitchRow, StitchTable

reproduce = import_module('reproduce')  # in tools, which config_models finds
ROOT = Path(__file__).parents[2]
SETR = 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k'


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the tool here; return the lines that it printed, but for comments."""

    def call(*args, comments=False):
        monkeypatch.setattr(sys, 'argv', ['reproduce.py', *args])
        reproduce.main()
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if line.startswith('# ') is comments]

    return call


def test_reproduce_prints_commands_of_a_table(call):
    options = '--launcher', 'slurm', '--gpus', '4', '--dry-run'
    lines = call('SN-Netv2 table 2', *options)
    trains = [line for line in lines if 'slurm_train.sh' in line]
    names = ['snnetv1-deit3-s-l_', 's-l-tws_', 's-l-tws-ros_', 'snnetv2-deit3-s-l_']
    for line, name in zip(trains, names, strict=True):
        assert re.match(r' +env GPUS=4 bash \S*tools/slurm_train.sh gpu ', line)
        assert name in line
        assert ' --resume' in line
    assert sum('--stitch-id all' in line for line in lines) == 4
    first, second, *_ = call('SN-Netv2 table 2', '--small', '--dry-run')
    assert 'configs/camvid/setr-naive_vit-fast_' in first
    assert '--stitch-id' not in second
    with pytest.raises(ValueError, match='There is no small run of it'):
        call('SN-Netv2 table 1', '--small')


def test_reproduce_list_has_a_name_for_every_item(call):
    head, *lines = call('--list')
    names = [line.partition(': ')[0] for line in lines]
    assert len({*names}) == len(names) > 40
    assert 'SN-Netv2 figure 11: the components, ImageNet (small run)' in lines
    papers = reproduce.read_papers()
    for paper in papers['papers']:
        shared = [name for item in paper['items'] for name in item['ids']]
        for item in paper['items']:
            (own, *_) = [name for name in item['ids'] if shared.count(name) == 1]
            assert reproduce.find_items(papers, f'{paper["name"]} {own}') == [item]


def test_reproduce_dry_run_says_what_runs_need(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / 'data/ade/ADEChallengeData2016'
    folder.mkdir(parents=True)
    known = call(
        'setr/setr-naive_snnetv2-deit3-[sb]-l_*ade20k*', '--dry-run', comments=True
    )
    weights = [f'deit_3_{name}_224_21k.pth' for name in ('base', 'large', 'small')]
    assert known == [
        '# Trainings: 2; 260 A100 hours',
        '# Disk: 18.0 GB of checkpoints',
        '# Data: data/ade/ADEChallengeData2016, 0.9 GB',
        *(
            f'# Weights: checkpoints/{w}, missing: tools/get_weights.py'
            for w in weights
        ),
    ]
    some = call('bridging/bridge-resnet50-swin-t_*', '--dry-run', comments=True)
    assert some[0] == '# Trainings: 1; 15 V100 hours, in part estimated'
    assert '# Data: data/imagenet, 155 GB, missing: docs/how_to/data.md' in some
    none = call('SN-Netv2 figure 12', '--dry-run', comments=True)
    assert none[0] == '# Trainings: 6; 60 A100 hours, unknown for 5 of 6'


SBATCH = """#!/usr/bin/env bash
echo "$@" >>submitted
echo "$(wc -l <submitted);cluster"
"""


def test_reproduce_submits_jobs_that_wait(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ValueError, match="launcher='slurm' .*a machine with sbatch"):
        call('setr/*-r4_*', '--launcher', 'slurm')
    sbatch = tmp_path / 'sbatch'
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    pattern = 'esta/fgvc/*[fn]*-convnext-*_cub-*'
    *_, last = call(pattern, '--launcher', 'slurm')
    jobs = [line.split() for line in Path('submitted').read_text().splitlines()]
    ids = {job[-1].split('/', 1)[1]: str(i) for i, job in enumerate(jobs, start=1)}
    assert last.startswith(f'{len(jobs)} jobs; ')
    waits = {job[-1].split('/', 1)[1]: job[2:-1] for job in jobs}
    for name, found in waits.items():
        folder, _, step = name.partition('/')
        after = []
        if step == 'test.slurm.sh':
            after = [ids[f'{folder}/train.slurm.sh']]
        elif folder.startswith('adapt-then-stitch'):  # starts from three trainings
            full = (f'full-convnext-{n}_1xb64-100e_cub-224x224' for n in 'tsb')
            after = [ids[f'{n}/train.slurm.sh'] for n in full]
        waited = [option.split(':')[1:] for option in found]
        assert sorted(sum(waited, [])) == sorted(after), name
        assert all(o.startswith('--dependency=afterok:') for o in found)
    script = Path(
        'work_dirs', next(n for n in ids if n.startswith('adapt') and 'test' in n)
    )
    text = script.read_text()
    assert '#SBATCH --ntasks=1\n' in text
    assert '#SBATCH --gres=gpu:1\n' in text
    assert f'$(cat {script.parent}/last_checkpoint)' in text
    assert subprocess.run(['bash', '-n', script]).returncode == 0
    # Of a finished training, the test alone is left.
    (script.parent / 'trained').touch()
    Path('submitted').unlink()
    call(f'esta/fgvc/{script.parent.name}', '--launcher', 'slurm')
    assert Path('submitted').read_text().split()[2:] == [str(script)]


def test_reproduce_run_is_config_with_options(call):
    name = 'setr-naive_snnetv2-deit3-s-l-r4_8xb2-80k_coco-stuff10k-512x512'
    train, test = call(f'setr/{name}', '--dry-run', '--launcher', 'pytorch')
    config = f'configs/setr/{name.replace("-r4", "")}.py'
    begin = f'bash tools/dist_train.sh {config} 8 --work-dir work_dirs/{name} --resume '
    assert train == f'{begin}--cfg-options model.backbone.stitching_layer.rank=4'
    begin = (
        f'bash tools/dist_test.sh {config} $(cat work_dirs/{name}/last_checkpoint) 8 '
    )
    assert test.startswith(f'{begin}--work-dir work_dirs/{name}/test --stitch-id all ')


def test_reproduce_tests_networks_without_blocks(call):
    lines = call('SN-Netv1 supplement H', '--dry-run')
    kept = [re.findall(r'kept_blocks=\[(.*?)\]', line) for line in lines[-4:]]
    assert kept == [[], ['6,7,8,9,10,11'], ['0,1,2,3,4,5'], ['0,2,4,6,8,10']]
    assert '/every-other ' in lines[-1]


def test_reproduce_tests_stitches_of_table_1_alone(call):
    tests = call('SN-Netv1 table 1 individual', '--dry-run')[3::2]
    found = [line.split('--stitch-id ')[1].split()[0] for line in tests]
    name = 'imagenet/published/snnetv1-deit-ti-s-b_in1k.json'
    results = StitchTable.read(ROOT / 'configs' / name)
    scores = [results.scores()[int(stitch_id)] for stitch_id in found]
    assert scores == [72.6, 76.48, 78.2, 79.96, 81.502, 81.962]


def test_reproduce_bridges_of_table_1_from_three_seeds(call):
    lines = call('Bridging table 1', '--dry-run')
    names = [re.search(r'--work-dir work_dirs/(.*?)_2xb256', x)[1] for x in lines[::2]]
    bridges = [f'bridge-resnet50-resnet50-1to{n}-bottleneck' for n in (2, 4)]
    seeds = [f'{bridge}-seed{n}' for bridge in bridges for n in range(3)]
    assert sorted(names) == sorted([f'resnet{n}' for n in (18, 34, 50)] + seeds)
    of_bridges = [line for line in lines if '-seed2' in line]
    assert all('randomness.seed=2' in line for line in of_bridges)
    assert ['--stitch-id 2 ' in line for line in of_bridges] == [False, True] * 2


def test_reproduce_variant_has_a_name(call):
    """Of the variants of an item, only those that are named are run."""
    name = 'bridging/bridge-resnet50-resnet50-1to4-bottleneck-seed1_*-lr0.01'
    train, _ = call(name, '--dry-run')
    assert 'optim_wrapper.optimizer.lr=0.01' in train
    assert len(call(name.replace('-lr0.01', '224x224'), '--dry-run')) == 2


def test_reproduce_prints_means_of_seeds_and_the_best_rate(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = {}

    def execute(command):
        work = Path(command[command.index('--work-dir') + 1])
        work.mkdir(parents=True, exist_ok=True)
        if 'test.py' not in command[1]:
            (work / 'last_checkpoint').write_text('iter_5.pth')
            return
        seed, gap = (int(re.search(p, str(work))[1]) for p in (r'-seed(\d)', r'to(\d)'))
        score = 70 - 10 * gap + 3 * seed + 5 * ('-lr0.002-' in str(work))
        about = dict(input_size=(224, 224), metrics={'accuracy/top1': score})
        row = StitchRow(2, 'FS', 'a route', (9 - gap) * 10**9, None, **about)
        directions = {'accuracy/top1': 'higher'}
        table = StitchTable([row], metric='accuracy/top1', directions=directions)
        table.save(work / 'stitches.json')

    def plot(table, path, others):
        drawn.update({'first': table, **dict(others)})

    monkeypatch.setattr(reproduce, 'execute', execute)
    monkeypatch.setattr('snnet_mm.evaluation.plot_pareto', plot)
    lines = call('bridging/finetune-resnet50-1to[34]-*')
    (at,) = [
        i
        for i, line in enumerate(lines)
        if line.startswith('finetune-') and '-1to3-lr0.002_' in line
    ]
    # Of 45, 48 and 51, the standard deviation is 3, and the error 3 / sqrt(3).
    assert lines[at + 2] == '    ours:  48 ± 1.7 accuracy/top1 at 6 GFLOPs'
    assert sum('    ours: ' in line for line in lines) == 6
    (best, _) = [line for line in lines if line.startswith('Best of 3 rates: ')]
    assert '-1to3-lr0.002_2xb256' in best
    # A front of both gaps at all rates, with means over seeds.
    points = [
        (row.flops / 1e9, drawn['first'].score(row)) for row in drawn['first'].rows
    ]
    assert len(drawn) == 1
    assert sorted(points) == [(5, 33), (5, 33), (5, 38), (6, 43), (6, 43), (6, 48)]


def test_reproduce_averages_stitches_over_data_sets():
    """Over the five sets of fine-grained classes, but not over four of them."""

    def table(*scores):
        about = dict(input_size=(224, 224))
        rows = [
            StitchRow(i, 'FS', '', (1 + i) * 10**9, None, metrics=dict(top1=s), **about)
            for i, s in enumerate(scores)
        ]
        return StitchTable(rows, metric='top1', directions=dict(top1='higher'))

    tables = {}
    for n, data in enumerate(['cub', 'cars', 'dogs', 'nabirds', 'flowers']):
        tables[f'a_1xb64-100e_{data}-224x224'] = table(n, 10)
        tables[f'a_1xb64-100e_{data}-224x224-uniform'] = table(10, 2 * n)
    del tables['a_1xb64-100e_cars-224x224']
    papers, groups = dict.fromkeys(tables, ''), reproduce.read_papers()['groups']
    fronts = print_figures(tables, papers, {*tables}, groups)
    mean = fronts.pop('a_1xb64-100e_fgvc-224x224-uniform')
    assert mean.scores() == {0: 10, 1: 4}
    assert len(fronts) == 4
    assert not any('uniform' in name for name in fronts)


def test_reproduce_measures_angles_in_place_of_a_test(call, tmp_path, monkeypatch):
    train, measure = call('ESTA figure 2 ImageNet', '--dry-run')
    assert 'train_cfg.max_iters=600' in train
    assert 'tools/research/gradient_cosines.py' in measure
    assert 'sampler.ids=[3,4,5,' in measure
    monkeypatch.chdir(tmp_path)

    def execute(command):
        if '--out' in command:
            out = Path(command[command.index('--out') + 1])
            out.parent.mkdir(parents=True)
            out.write_text(json.dumps(dict(summary='77 degrees')))
        else:
            work = Path(command[command.index('--work-dir') + 1])
            (work / 'last_checkpoint').write_text('iter_600.pth')

    monkeypatch.setattr(reproduce, 'execute', execute)
    assert call('ESTA figure 2 ImageNet')[-1] == '    ours:  77 degrees'


def test_reproduce_items_of_variants_alone(call):
    """Kinds at initialization, without the training that figure 15 needs."""
    train, _ = call('SN-Netv2 figure 13', '--dry-run')
    assert 'train_cfg.max_iters=1 optim_wrapper.optimizer.lr=0' in train


def test_reproduce_unknown_item_is_refused(call):
    with pytest.raises(ValueError, match="^'SN-Netv2 table 9'"):
        call('SN-Netv2 table 9')


def test_reproduce_does_nothing_twice(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = []

    def execute(command):
        ran.append(' '.join(command))
        work = Path(command[command.index('--work-dir') + 1])
        work.mkdir(parents=True, exist_ok=True)
        if 'test.py' in command[1]:
            text = (ROOT / 'configs' / f'{SETR}.json').read_text()
            (work / 'stitches.json').write_text(text)
        else:
            (work / 'last_checkpoint').write_text('iter_5.pth')

    monkeypatch.setattr(reproduce, 'execute', execute)
    item = 'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_*'
    for _ in range(2):
        found = '\n'.join(call(item))
        assert len(ran) == 2
    # Of more GPUs, or another config, it is another run.
    with pytest.raises(ValueError, match='results with gpus=8, not with gpus=1, or'):
        call(item, '--launcher', 'pytorch')
    (path,) = Path('work_dirs').rglob('reproduced.json')
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(config='a')))
    with pytest.raises(ValueError, match="not with config='a'"):
        call(item)
    assert len(ran) == 2
    assert 'tools/train.py' in ran[0]
    assert 'iter_5.pth' in ran[1]
    assert 'ours:  45.57 - 51.35 mIoU at 33.5 - 363 GFLOPs' in found
    assert re.search(r'paper: .*45\.6 - 51\.4', found)
    (picture,) = Path('work_dirs').glob('*.png')
    assert picture.read_bytes().startswith(b'\x89PNG')
