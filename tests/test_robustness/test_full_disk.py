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


def commands(config, trained, out):
    """Each tool, the file that it is to write, and what it calls the folder."""
    return dict(
        train=(('train.py', config, '--work-dir', out), 'iter_1.pth', '--work-dir'),
        test=(
            ('test.py', config, trained, '--work-dir', out, '--stitch-id', '0'),
            'stitches.json',
            '--work-dir',
        ),
        export=(
            ('export_stitch.py', config, trained, '--stitch-id', 1, '--out', out),
            'stitch_1.pth',
            '--out',
        ),
        table=(
            ('analysis_tools/stitch_table.py', config, '--out', out),
            'costs.json',
            '--out',
        ),
    )


TOOLS = 'train', 'test', 'export', 'table'


def files(folder):
    return [p for p in Path(folder).rglob('*') if p.is_file()]


@pytest.mark.parametrize('tool', TOOLS)
def test_a_full_disk(tool, config, trained, tmp_path, run_tool, monkeypatch):
    """All of the file was written but for its last block."""
    out = tmp_path / 'out'
    args, name, _ = commands(config, trained, out)[tool]
    fsync = os.fsync

    def full(descriptor):
        path = os.readlink(f'/proc/self/fd/{descriptor}')
        if Path(path).name.startswith(f'.{Path(name).stem}.'):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(ValueError, match=rf'{name} cannot be written: No space') as e:
        run_tool(*args)
    assert '\n' not in str(e.value)
    assert not [p for p in files(out) if Path(name).stem in p.name]


@pytest.mark.parametrize('tool', TOOLS)
def test_a_folder_that_cannot_be(tool, config, trained, tmp_path, run_tool):
    """Its parent is a file."""
    (tmp_path / 'file').touch()
    args, _, option = commands(config, trained, tmp_path / 'file' / 'out')[tool]
    with pytest.raises(ValueError, match=r'file/out cannot be written to: Not a') as e:
        run_tool(*args)
    assert option in str(e.value)
    assert '\n' not in str(e.value)


@pytest.mark.parametrize('tool', TOOLS)
def test_a_read_only_folder(tool, config, trained, tmp_path, run_tool):
    """No permission stops the superuser, but nobody writes into /proc."""
    args, _, option = commands(config, trained, '/proc/fdinfo')[tool]
    with pytest.raises(ValueError, match='/proc/fdinfo cannot be written to: ') as e:
        run_tool(*args)
    assert option in str(e.value)


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_errors_of_atomic_files_name_the_file(number, tmp_path, monkeypatch):
    def fail(source, target):
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr(os, 'replace', fail)
    path = tmp_path / 'a.json'
    path.write_text('before')
    with (
        pytest.raises(UnwritableError, match=f'{path} cannot be written: \\w'),
        atomic_path(path) as temporary,
    ):
        temporary.write_text('after')
    assert files(tmp_path) == [path]
    assert path.read_text() == 'before'


def test_what_fails_inside_is_no_matter_of_the_disk(tmp_path):
    with pytest.raises(FileNotFoundError, match='other'), atomic_path(tmp_path / 'a'):
        (tmp_path / 'other').read_text()
    assert files(tmp_path) == []


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
