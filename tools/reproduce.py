"""Reproduce a table or figure: ``tools/reproduce.py 'SN-Netv2 table 2'`` or ``--list``.

Trains and tests its runs one after another, plots their fronts, and prints their
figures beside the paper's. Finished trainings and tests are skipped; an interrupted
training is resumed. With ``--launcher slurm``, it submits them as jobs, and prints
figures when called again after they have ended.

``configs/papers.yml`` lists all tables and figures, and the runs, which can also be
given by name, such as ``'setr/*-r4_*'``. Figures of runs that differ in the seed alone
are means with standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from fronts import print_figures
from jobs import Jobs, in_order, print_needs
from papers import (
    CONFIGS,
    ROOT,
    Run,
    figures,
    flattened,
    options_of,
    read_config,
    read_papers,
    read_runs,
)

from snnet_mm.runtime.record import check_request, read_record
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import ToolParser, digest, run_command, write_json

RECORD = 'reproduced.json'  # in work directories
RESULTS = 'stitches.json', 'results.json', 'measured.json'  # in those of tests
NOT_RUN = 'not run here: needs GPUs'  # state of most items
# Name parts of stitched models, whose stitches are all tested.
STITCHED = re.compile(r'snnet|bridge-|esta-|stitch|fast-slow')


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    what = "a table or figure, such as 'SN-Netv2 table 2', or runs: 'setr/*-r4_*'"
    add('item', nargs='?', help=what)
    add('--list', action='store_true', help='print all tables and figures')
    add('--small', action='store_true', help='run it at small scale, on a CPU')
    what = 'only print the commands, and the hours, disk, data and weights they need'
    add('--dry-run', action='store_true', help=what)
    launchers = dict(choices=('none', 'pytorch', 'slurm'), default='none')
    what = 'job launcher (default: none); slurm submits a job for every step'
    add('--launcher', **launchers, help=what)
    what = 'number of GPUs (default: as in the name of the config)'
    add('--gpus', type=int, help=what)
    add('--partition', default='gpu', help='Slurm partition (default: gpu)')
    return parser.parse_args()


def find_items(papers: Mapping, wanted: str) -> list[dict]:
    """Return the items of a table or figure, one per part."""
    found = [
        item
        for paper in papers['papers']
        for item in paper['items']
        if wanted in [f'{paper["name"]} {name}' for name in item['ids']]
    ]
    if not found:
        raise ValueError(f'{wanted!r} is not a table, a figure or a run: see --list')
    return found


def named(pattern: str, runs: Mapping[str, Run]) -> list[Run]:
    return [run for name, run in runs.items() if fnmatch(name, pattern)]


def find_runs(items: list[dict], runs: Mapping[str, Run], small: bool) -> list[Run]:
    """Return the runs of items, each followed by its variants.

    If any run is a stitched model, only stitched models have variants. With ``base`` of
    an item as False, there are only the variants.
    """
    found = []
    for item in items:
        patterns = item.get('small' if small else 'train', ())
        same = [run for pattern in patterns for run in named(pattern, runs)]
        varied = [run for run in same if is_stitched(run)] or same
        for run in same:
            found += [run] * item.get('base', True)
            variants = item.get('variants', {}) if run in varied else {}
            for name, options in variants.items():
                options = *run.options, *flattened(options)
                tests = item.get('tests', {})
                how = tests, item.get('tool', '')
                found.append(Run(f'{run.name}-{name}', run.config, options, *how))
    if not found:
        what = 'no small run' if small else 'no config'
        notes = '; '.join(item['state'] for item in items)
        raise ValueError(f'There is {what} of it ({notes})')
    return list({run.name: run for run in found}.values())


def variants_of(papers: Mapping, runs: Mapping[str, Run]) -> dict[str, Run]:
    """Return the variants of all items by name."""
    items = [i for paper in papers['papers'] for i in paper['items'] if 'variants' in i]
    return {
        run.name: run
        for item in items
        for small in (False, True)
        if ('small' if small else 'train') in item
        for run in find_runs([item], runs, small)
        if run.name not in runs
    }


def is_stitched(run: Run) -> bool:
    return STITCHED.search(Path(run.name).name) is not None


def work_dir(run: Run) -> Path:
    return Path('work_dirs', Path(run.name).name)


def gpus_of(run: Run, args: argparse.Namespace) -> int:
    """Return the number of GPUs: by default as many as give the paper's batch."""
    return args.gpus or int(re.search(r'_(\d+)xb\d', run.name)[1])


def launch(tool: str, run: Run, args: argparse.Namespace, *options: str) -> list[str]:
    """Return the command of a tool; the options of a test begin with a checkpoint."""
    tools, config = os.path.relpath(ROOT / 'tools'), os.path.relpath(run.config)
    gpus = str(gpus_of(run, args))
    if args.launcher == 'pytorch':
        number = tool == 'test'  # of arguments between config and GPUs
        given = config, *options[:number], gpus, *options[number:]
        return ['bash', f'{tools}/dist_{tool}.sh', *given]
    if args.launcher == 'slurm':
        script = 'env', f'GPUS={gpus}', 'bash', f'{tools}/slurm_{tool}.sh'
        return [*script, args.partition, work_dir(run).name, config, *options]
    return [sys.executable, f'{tools}/{tool}.py', config, *options]


def overrides(run: Run, options: Iterable[str] = ()) -> list[str]:
    """Return the option that overrides settings of the config, if there are any."""
    options = [*run.options, *options]
    if not options:
        return []
    return ['--cfg-options', *options_of(options, read_config(run.config).model)]


def train_command(run: Run, args: argparse.Namespace) -> list[str]:
    options = '--work-dir', str(work_dir(run)), '--resume', *overrides(run)
    return launch('train', run, args, *options)


def test_command(
    run: Run, args: argparse.Namespace, name: str, checkpoint: str
) -> list[str]:
    """Return the command of a test, which writes to the folder of its name."""
    if run.tool:
        tool = f'{os.path.relpath(ROOT / "tools/research")}/{run.tool}.py'
        out = '--out', str(work_dir(run) / name / RESULTS[-1])
        config = os.path.relpath(run.config)
        return [sys.executable, tool, config, checkpoint, *out, *overrides(run)]
    options = ['--work-dir', str(work_dir(run) / name)]
    if is_stitched(run):  # all stitches, or those that the run trains
        ids = re.search(r'sampler\.ids=\[(.+?)\]', ' '.join(run.options))
        options += ['--stitch-id', ids[1] if ids else 'all']
    options += overrides(run, flattened(run.tests.get(name, [])))
    return launch('test', run, args, checkpoint, *options)


def results_of(run: Run, test: str = 'test') -> Path | None:
    """Return the newest results of a test, None if there are none."""
    found = [path for name in RESULTS for path in (work_dir(run) / test).rglob(name)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def execute(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    paths = str(ROOT), os.environ.get('PYTHONPATH')
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    if status := subprocess.run(command, env=env).returncode:
        raise ChildProcessError(f'{shlex.join(command)} ended with status {status}')


def check_work_dir(run: Run, args: argparse.Namespace) -> None:
    """Refuse a work directory of another config, other options or GPUs; record them."""
    folder, config = work_dir(run), read_config(run.config).to_dict()
    settings = json.dumps(config, default=str, sort_keys=True)
    number = 1 if args.launcher == 'none' else gpus_of(run, args)
    request = dict(config=digest([settings]), options=[*run.options], gpus=number)
    if known := read_record(folder / RECORD):
        instead = 'no folder of this name'
        check_request(known, request, 'work_dir', folder, instead)
    write_json(folder / RECORD, request)


def submit(run: Run, args: argparse.Namespace, jobs: Jobs) -> int:
    """Submit jobs that train and test a config; return how many steps were left."""
    folder, gpus, after, left = work_dir(run), gpus_of(run, args), [], 0
    if not args.dry_run:
        check_work_dir(run, args)
    if not (folder / 'trained').exists() or args.dry_run:
        command = f'{shlex.join(train_command(run, args))}\ntouch {folder}/trained'
        given = folder, 'train', command, gpus, jobs.trainings_before(run)
        after, left = [jobs.submit(*given)], 1
        jobs.ids[folder.name] = after[0]
    for test in ('test', *run.tests):
        if results_of(run, test) is None or args.dry_run:
            command = shell_test_command(run, args, test)
            jobs.submit(folder, test, command, 1 if run.tool else gpus, after)
            left += 1
    return left


def shell_test_command(run: Run, args: argparse.Namespace, test: str) -> str:
    """Return the command of a test as text, with the checkpoint that there is then."""
    shown = shlex.join(test_command(run, args, test, 'CHECKPOINT'))
    return shown.replace('CHECKPOINT', f'$(cat {work_dir(run)}/last_checkpoint)')


def reproduce(run: Run, args: argparse.Namespace) -> None:
    """Train and test a config, skipping finished steps."""
    trained, last = (work_dir(run) / name for name in ('trained', 'last_checkpoint'))
    tests = 'test', *run.tests
    if args.dry_run:
        print(shlex.join(train_command(run, args)))
        for test in tests:
            print(shell_test_command(run, args, test))
        return
    check_work_dir(run, args)
    if not trained.exists():
        execute(train_command(run, args))
        trained.touch()
    for test in tests:
        if results_of(run, test) is None:
            execute(test_command(run, args, test, last.read_text().strip()))


def report(runs: list[Run], papers: Mapping, published: list[str], out: Path) -> None:
    """Print the figures of all runs beside the paper's, and plot the fronts."""
    for run in (run for run in runs if run.tool):
        measured = json.loads(results_of(run).read_text())
        print(f'{work_dir(run).name}\n    ours:  {measured["summary"]}')
    by_name = {work_dir(run).name: run for run in runs if not run.tool}
    tables = {n: StitchTable.read(results_of(run)) for n, run in by_name.items()}
    of_paper = {n: figures(papers, run.name) for n, run in by_name.items()}
    stitched = {n for n, run in by_name.items() if is_stitched(run)}
    fronts = print_figures(tables, of_paper, stitched, papers['groups'])
    if fronts:
        from snnet_mm.evaluation import plot_pareto

        fronts |= {Path(p).stem: StitchTable.read(CONFIGS / p) for p in published}
        (_, first), *others = fronts.items()
        plot_pareto(first, out, others=others)
        print(f'Wrote {out}')


def main() -> None:
    args, papers = parse_args(), read_papers()
    if args.list or args.item is None:
        print('Not run here, as they need GPUs, unless another state is named:')
        for paper in papers['papers']:
            for item in paper['items']:
                names = f'{paper["name"]} {", ".join(item["ids"])}'
                state = item['state'].removeprefix(NOT_RUN).removeprefix('; ')
                about = item['paper'].partition(': ')[2] or item['paper']
                print(f'{names}: {about}{f" ({state})" if state else ""}')
        return
    every, items = read_runs(papers), []
    runs = named(args.item, every) or named(args.item, variants_of(papers, every))
    if not runs:
        items = find_items(papers, args.item)
        runs = find_runs(items, every, args.small)
    runs = in_order(runs)
    if args.launcher == 'slurm':
        jobs = Jobs(args.partition, args.dry_run)
        left = sum(submit(run, args, jobs) for run in runs)
    else:
        left = 0
        for run in runs:
            reproduce(run, args)
    if args.dry_run:
        print_needs(runs)
    elif left:
        print(f'{left} jobs; when they have ended, the same command prints figures')
    else:
        name = re.sub(r'\W+', '-', args.item) + '-small' * args.small
        published = [item['published'] for item in items if 'published' in item]
        published = [] if args.small else published
        report(runs, papers, published, Path('work_dirs', f'{name}.png'))


if __name__ == '__main__':
    run_command(main)
