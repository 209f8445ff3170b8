"""A disk that is full, or a folder that cannot be written to, is said in one line."""

import errno
import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from killing import fork, wait
from mmengine.runner import Runner

from snnet_mm.utils import UnwritableError, atomic_path

# Arguments of each tool, the last before its folder, and the file that it is to write.
TOOLS = {
    'train.py': ('{config} --work-dir', 'iter_1.pth'),
    'test.py': ('{config} {trained} --work-dir', 'group_0.pth'),
    'export_stitch.py': ('{config} {trained} --stitch-id 1 --out', 'stitch_1.pth'),
    'analysis_tools/stitch_table.py': ('{config} --out', 'costs.json'),
}


@pytest.fixture(params=TOOLS)
def run(request, config, trained, run_here):
    """Runs a tool that writes into a folder, and should say why it cannot."""
    args, name = TOOLS[request.param]
    args = args.format(config=config, trained=trained).split()

    def run(folder, words):
        words = words.format(name=name, option=args[-1])
        with pytest.raises(ValueError, match=words) as error:
            run_here(request.param, *args, folder)
        assert '\n' not in str(error.value)
        assert not [p for p in folder.rglob('*') if Path(name).stem in p.name]

    return run


def test_a_full_disk(run, tmp_path, monkeypatch):
    """All of the file was written but for its last block."""
    fsync = os.fsync

    def full(descriptor):
        path = Path(os.readlink(f'/proc/self/fd/{descriptor}'))
        if path.name.startswith('.') and path.is_file():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, 'fsync', full)
    run(tmp_path / 'out', '{name} cannot be written: No space')


@pytest.mark.parametrize('folder', ['file/out', '/proc/fdinfo'])
def test_a_folder_that_cannot_be_written_to(folder, run, tmp_path):
    """Its parent is a file, or it takes no files, which stops the superuser, too."""
    (tmp_path / 'file').touch()
    run(tmp_path / folder, f'{folder} cannot be written to: .*{{option}}')


@contextmanager
def small_disk(words):
    """The limit of the process stands for that of the disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
    with pytest.raises(UnwritableError, match=words):
        yield


def test_a_disk_that_is_full_for_real(run_cfg, tmp_path):
    def work():
        run_cfg.work_dir = str(tmp_path)
        runner = Runner.from_cfg(run_cfg)
        with small_disk('iter_1.pth cannot be .*: File too'):
            runner.train()

    assert not wait(fork(work, tmp_path))
    assert [p.name for p in tmp_path.iterdir() if 'iter' in p.name] == []


def test_what_torch_says_of_a_full_disk(tmp_path):
    """It writes some files itself."""
    path = tmp_path / 'a.pth'

    def work():
        with small_disk(f'{path} cannot be .* full disk'), atomic_path(path) as new:
            torch.save(dict(w=torch.zeros(100_000)), new)

    assert not wait(fork(work, tmp_path))
    assert list(tmp_path.iterdir()) == []
