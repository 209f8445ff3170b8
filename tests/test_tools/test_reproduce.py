import json
import re
import sys
from importlib import import_module
from pathlib import Path

import config_models  # noqa: F401
import pytest

from snnet_mm.stitching import StitchTable

reproduce = import_module('reproduce')  # in tools, which config_models finds
ROOT = Path(__file__).parents[2]
SETR = 'setr/published/setr-naive_snnetv2-deit3-s-l_ade20k'


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the tool here; return the lines that it printed."""

    def call(*args):
        monkeypatch.setattr(sys, 'argv', ['reproduce.py', *args])
        reproduce.main()
        return capsys.readouterr().out.splitlines()

    return call


def test_reproduce_prints_commands_of_a_table(call):
    options = '--launcher', 'slurm', '--gpus', '4', '--dry-run'
    lines = call('SN-Netv2 table 2', *options)
    trains = [line for line in lines if 'slurm_train.sh' in line]
    names = ['snnetv1-deit3-s-l_', 's-l-tws_', 's-l-tws-ros_', 'snnetv2-deit3-s-l_']
    for line, name in zip(trains, names, strict=True):
        assert re.match(r'env GPUS=4 bash \S*tools/slurm_train.sh gpu ', line)
        assert name in line
        assert ' --resume' in line
    assert sum('--stitch-id all' in line for line in lines) == 4
    first, second, *_ = call('SN-Netv2 table 2', '--small', '--dry-run')
    assert 'configs/camvid/setr-naive_vit-fast_' in first
    assert '--stitch-id' not in second
    with pytest.raises(ValueError, match='There is no small run of it'):
        call('SN-Netv2 table 1', '--small')
    assert any(x.startswith('SN-Netv2 table 2: not run here') for x in call('--list'))


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
