import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from snnet_mm.stitching import StitchResults

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'reproduce.py'
DATA = ROOT / 'tests' / 'data'
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
                    assert tool.find_configs([item], small)
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
