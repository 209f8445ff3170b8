"""A disk that is full, or a folder that cannot be written to, is said in one line."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from killing import fork, wait
from mmengine.config import Config
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.utils import UnwritableError, atomic_path


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp('config') / 'config.py'
    cfg = tiny_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.dump(path)
    return path


@pytest.fixture(scope='module')
def trained(config, tmp_path_factory):
    cfg = Config.fromfile(config)
    cfg.work_dir = str(tmp_path_factory.mktemp('trained'))
    Runner.from_cfg(cfg).train()
    return Path(cfg.work_dir) / 'iter_1.pth'


# Of each tool: its arguments, the file that it is to write, the option of the folder.
TOOLS = {
    'train.py': ('{config} --work-dir {out}', 'iter_1.pth', '--work-dir'),
    'test.py': (
        '{config} {trained} --work-dir {out} --stitch-id 0',
        'stitches.json',
        '--work-dir',
    ),
    'export_stitch.py': (
        '{config} {trained} --stitch-id 1 --out {out}',
        'stitch_1.pth',
        '--out',
    ),
    'analysis_tools/stitch_table.py': ('{config} --out {out}', 'costs.json', '--out'),
}


def files(folder):
    return [p for p in Path(folder).rglob('*') if p.is_file()]


@pytest.mark.parametrize('tool', TOOLS)
def test_a_full_disk(tool, config, trained, tmp_path, run_tool, monkeypatch):
    """All of the file was written but for its last block."""
    args, name, _ = TOOLS[tool]
    out = tmp_path / 'out'
    fsync = os.fsync

    def full(descriptor):
        path = os.readlink(f'/proc/self/fd/{descriptor}')
        if Path(path).name.startswith(f'.{Path(name).stem}.'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(ValueError, match=rf'{name} cannot be written: No space') as e:
        run_tool(tool, *args.format(config=config, trained=trained, out=out).split())
    assert '\n' not in str(e.value)
    assert not [p for p in files(out) if Path(name).stem in p.name]


@pytest.mark.parametrize('folder', ['file/out', '/proc/fdinfo'])
@pytest.mark.parametrize('tool', TOOLS)
def test_a_folder_that_cannot_be_written_to(
    tool, folder, config, trained, tmp_path, run_tool
):
    """Its parent is a file, or it takes no files, which stops the superuser, too."""
    (tmp_path / 'file').touch()
    args, _, option = TOOLS[tool]
    out = tmp_path / folder
    with pytest.raises(ValueError, match=f'{folder} cannot be written to: ') as e:
        run_tool(tool, *args.format(config=config, trained=trained, out=out).split())
    assert option in str(e.value)
    assert '\n' not in str(e.value)


def test_a_disk_that_is_full_for_real(config, tmp_path):
    """The limit of the process stands for that of the disk."""
    folder = tmp_path / 'run'
    folder.mkdir()

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        cfg = Config.fromfile(config)
        cfg.work_dir, cfg.experiment_name = str(folder), tmp_path.name
        runner = Runner.from_cfg(cfg)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        with pytest.raises(UnwritableError, match='iter_1.pth cannot be .*: File too'):
            runner.train()

    assert not wait(fork(work, folder))
    assert [p.name for p in folder.iterdir() if 'iter' in p.name] == []


def test_what_torch_says_of_a_full_disk(tmp_path):
    """It writes some files itself."""
    path = tmp_path / 'a.pth'

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        with (
            pytest.raises(UnwritableError, match=f'{path} cannot be .* full disk'),
            atomic_path(path) as temporary,
        ):
            torch.save(dict(w=torch.zeros(100_000)), temporary)

    assert not wait(fork(work, tmp_path))
    assert files(tmp_path) == []
