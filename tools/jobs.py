"""Slurm jobs of the papers' runs, and what runs need, for ``tools/reproduce.py``.

A training and each of its tests is one job. Tests wait for their training, a training
for those whose checkpoints it starts from.
"""

from __future__ import annotations

import copy
import os
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from papers import HOURS, Run, options_of, read_config

from snnet_mm.utils import check

HEAD = """#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --output={folder}/slurm-%j.out
#SBATCH --partition={partition}
#SBATCH --ntasks={gpus}
#SBATCH --ntasks-per-node={per_node}
#SBATCH --cpus-per-task={cpus}
{gres}set -euo pipefail
export PORT=${{PORT:-$((20000 + SLURM_JOB_ID % 40000))}}  # two jobs may share a node
"""


class Jobs:
    """Job scripts of runs, in work directories, and their ids.

    Account, time limit and so on are sbatch's own variables: ``SBATCH_ACCOUNT``,
    ``SBATCH_TIMELIMIT``.

    Args:
        partition: Partition of all jobs.
        dry_run: Whether to print the scripts' commands instead of submitting them.
    """

    def __init__(self, partition: str, dry_run: bool) -> None:
        self.partition, self.dry_run = partition, dry_run
        self.ids: dict[str, str] = {}  # of trainings, by work directory
        found = dry_run or shutil.which('sbatch')
        check(found, '--launcher', 'slurm', 'a machine with sbatch, or --dry-run')

    def submit(
        self,
        folder: Path,
        name: str,
        command: str,
        gpus: int,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a shell command as a job; return its id.

        Args:
            folder: Work directory, for the script and its log.
            name: Name of the script.
            command: The command.
            gpus: Number of processes.
            after: Ids of jobs that have to succeed before.
        """
        script = folder / f'{name}.slurm.sh'
        waits = [f'--dependency=afterok:{":".join(after)}'] if after else []
        submit = ['sbatch', '--parsable', '--kill-on-invalid-dep=yes', *waits]
        submit.append(str(script))
        print(shlex.join(submit))
        if self.dry_run:
            print(f'    {command}'.replace('\n', '\n    '))
            return f'{folder.name}/{name}'
        folder.mkdir(parents=True, exist_ok=True)
        per_node = int(os.environ.get('GPUS_PER_NODE') or min(gpus, 8))
        gres = os.environ.get('GRES', f'gpu:{per_node}')
        head = HEAD.format(
            name=f'{folder.name}-{name}',
            folder=folder,
            partition=self.partition,
            gpus=gpus,
            per_node=per_node,
            cpus=os.environ.get('CPUS_PER_TASK') or 10,
            gres=f'#SBATCH --gres={gres}\n' * bool(gres),
        )
        script.write_text(f'{head}{command}\n')
        done = subprocess.run(submit, capture_output=True, text=True)
        if done.returncode:
            raise ChildProcessError(f'{shlex.join(submit)}: {done.stderr.strip()}')
        return done.stdout.strip().partition(';')[0]

    def trainings_before(self, run: Run) -> list[str]:
        """Return the ids of trainings whose checkpoints a run starts from."""
        named = {Path(path).parent.name for path in files_of(run)}
        return [i for folder, i in self.ids.items() if folder in named]


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Return runs, each after those whose checkpoints it starts from."""
    by_folder, found = {Path(run.name).name: run for run in runs}, {}

    def add(run: Run) -> None:
        for name in dict.fromkeys(Path(path).parent.name for path in files_of(run)):
            if name in by_folder and by_folder[name] is not run:
                add(by_folder[name])
        found.setdefault(run.name, run)

    for run in runs:
        add(run)
    return [*found.values()]


def settings_of(run: Run) -> dict[str, Any]:
    """Return all settings of a run by their paths; those of options are text."""
    cfg = copy.deepcopy(read_config(run.config))
    options = options_of(run.options, cfg.model)
    cfg.merge_from_dict(dict(option.split('=', 1) for option in options))
    return dict(_settings(cfg.to_dict()))


def _settings(node: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    parts = enumerate(node) if isinstance(node, list | tuple) else ()
    parts = node.items() if isinstance(node, Mapping) else parts
    for key, child in parts:
        yield from _settings(child, f'{path}.{key}'.strip('.'))
    if not isinstance(node, Mapping | list | tuple):
        yield path, node


def files_of(run: Run) -> list[str]:
    """Return the checkpoints that a training starts from."""
    found = settings_of(run).items()
    # Not in variables of the config file, which options do not change.
    used = [(k, v) for k, v in found if k.startswith(('model.', 'load_from'))]
    named = [v for k, v in used if k.endswith(('checkpoint', 'load_from'))]
    return [*dict.fromkeys(v for v in named if isinstance(v, str) and v != 'None')]


def data_of(run: Run) -> list[str]:
    """Return the data folders of a run."""
    loaders = 'train_dataloader', 'test_dataloader'
    found = settings_of(run).items()
    named = [v for k, v in found if k.startswith(loaders) and k.endswith('data_root')]
    return [*dict.fromkeys(str(v).rstrip('/') for v in named if v)]


@cache
def read_hours() -> dict[str, Any]:
    return yaml.safe_load(HOURS.read_text())


def hours_of(run: Run) -> dict[str, Any] | None:
    """Return the hours and checkpoints of a run, if they are known."""
    for known in read_hours()['trainings'].values():
        if any(fnmatch(run.name, pattern) for pattern in known['runs'].split()):
            return known
    return None


def print_needs(runs: Sequence[Run]) -> None:
    """Print what runs need as comments: hours, disk, data, and what is missing."""
    known = [found for found in map(hours_of, runs) if found]
    unknown = len(runs) - len(known)
    hours, disk = Counter(), 0.0
    for each in known:
        hours[each['gpu']] += float(each['hours'].lstrip('~'))
        number, size = each['checkpoints']
        disk += number * size
    times = [f'{total:g} {gpu} hours' for gpu, total in hours.items()]
    times += ['in part estimated'] * any('source' not in each for each in known)
    rest = [f'unknown for {unknown} of {len(runs)}'] * bool(unknown)
    print(f'# Trainings: {len(runs)}; {", ".join([*times, *rest])}')
    space = [f'{disk:.1f} GB of checkpoints'] * bool(known)
    print(f'# Disk: {", ".join([*space, *rest])}')
    for folder in dict.fromkeys(folder for run in runs for folder in data_of(run)):
        missing = ', missing: docs/how_to/data.md' * (not Path(folder).is_dir())
        print(f'# Data: {folder}, {_size_of(folder)}{missing}')
    made = {Path(run.name).name for run in runs}
    for file in dict.fromkeys(file for run in runs for file in files_of(run)):
        if '://' in file:
            print(f'# Weights: {file}, downloaded when needed')
        elif not Path(file).exists() and Path(file).parent.name not in made:
            print(f'# Weights: {file}, missing: tools/get_weights.py')


def _size_of(folder: str) -> str:
    """Return the size of the download of a data folder, or that it is unknown."""
    for known, size in read_hours()['data'].items():
        if f'{folder}/'.startswith(f'{known}/'):
            return f'{size} GB'
    return 'size unknown'
