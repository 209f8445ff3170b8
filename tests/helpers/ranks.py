"""Processes of one training, forked from the test."""

import os
import socket

from killing import fork, wait


def fork_ranks(number, work, folder):
    """Call ``work(rank)`` in forked processes, launched as by torchrun.

    Returns their ids. Files of tests that call it belong in conftest.py's ``FORKING``.
    """
    folder.mkdir(exist_ok=True)
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        port = sock.getsockname()[1]

    def run(rank):
        env = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=number)
        env |= dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=port, CUDA_VISIBLE_DEVICES='')
        os.environ.update({k: str(v) for k, v in env.items()})
        work(rank)

    return [fork(lambda rank=rank: run(rank), folder) for rank in range(number)]


def run_ranks(number, work, folder):
    """Call ``work(rank)`` in forked processes, and wait for them."""
    for pid in fork_ranks(number, work, folder):
        wait(pid)
