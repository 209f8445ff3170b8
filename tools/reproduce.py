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
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from statistics import fmean, stdev

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
NOT_RUN = 'not run here: needs GPUs'  # state of most items
# Name parts of stitched models, whose stitches are all tested.
STITCHED = re.compile(r'snnet|bridge-|esta-|stitch|fast-slow')
# Name parts in which runs of one figure differ, and those of one front.
SEED, RATE = re.compile(r'-seed\d'), re.compile(r'-lr[\d.]+')
GAP_OR_RATE = re.compile(r'-\dto\d|-lr[\d.]+')


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

    If any run is a stitched model, only stitched models have variants.
    """
    found = []
    for item in items:
        patterns = item.get('small' if small else 'train', ())
        same = [run for pattern in patterns for run in named(pattern, runs)]
        varied = [run for run in same if is_stitched(run)] or same
        for run in same:
            found.append(run)
            variants = item.get('variants', {}) if run in varied else {}
            for name, options in variants.items():
                options = *run.options, *flattened(options)
                tests = item.get('tests', {})
                found.append(Run(f'{run.name}-{name}', run.config, options, tests))
    if not found:
        what = 'no small run' if small else 'no config'
        notes = '; '.join(item['state'] for item in items)
        raise ValueError(f'There is {what} of it ({notes})')
    return list({run.name: run for run in found}.values())


def variants_of(papers: Mapping, runs: Mapping[str, Run]) -> dict[str, Run]:
    """Return the variants of all items by name, such as ``'..._224x224-lr0.01'``."""
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
    options = ['--work-dir', str(work_dir(run) / name)]
    if is_stitched(run):  # all stitches, or those that the run trains
        ids = re.search(r'sampler\.ids=\[(.+?)\]', ' '.join(run.options))
        options += ['--stitch-id', ids[1] if ids else 'all']
    options += overrides(run, flattened(run.tests.get(name, [])))
    return launch('test', run, args, checkpoint, *options)


def results_of(run: Run, test: str = 'test') -> Path | None:
    """Return the newest results of a test, None if there are none."""
    found = [
        path
        for name in ('stitches.json', 'results.json')
        for path in (work_dir(run) / test).rglob(name)
    ]
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
            jobs.submit(folder, test, command, gpus, after)
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


def mean_and_error(values: list[float]) -> str:
    """Return a mean, and its standard error if there are several values."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f'{fmean(values):.4g}' + f' ± {error:.2g}' * (len(values) > 1)


def ends_of(seeds: list[StitchTable]) -> str:
    """Return scores and costs of the cheapest and the most expensive stitch."""
    costs, scores = seeds[0].column('flops'), [table.scores() for table in seeds]
    ids = sorted(scores[0], key=costs.get)
    ends = dict.fromkeys((ids[0], ids[-1]))
    score = ' - '.join(mean_and_error([found[i] for found in scores]) for i in ends)
    cost = ' - '.join(f'{costs[i] / 1e9:.3g}' for i in ends)
    return f'{score} {seeds[0].metric} at {cost} GFLOPs'


def mean_of(seeds: list[StitchTable]) -> StitchTable:
    """Return a table with the mean scores of tables of several seeds."""
    first, scores = seeds[0], [table.scores() for table in seeds]
    means = {i: fmean(found[i] for found in scores) for i in scores[0]}
    rows = [
        replace(r, metrics={first.metric: means[r.id]})
        for r in first.rows
        if r.id in means
    ]
    return replace(first, rows=rows)


def grouped(names: Iterable[str], part: re.Pattern) -> dict[str, list[str]]:
    """Group names that are equal without a part of them."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(part.sub('', name), []).append(name)
    return found


def joined(tables: list[StitchTable]) -> StitchTable:
    """Return the rows of several tables, such as gaps of a bridge, as one table."""
    if len(tables) == 1:
        return tables[0]
    rows = enumerate(row for table in tables for row in table.rows)
    rows = [replace(row, id=i) for i, row in rows]
    return replace(tables[0], rows=rows, space=None)


def report(runs: list[Run], papers: Mapping, published: list[str], out: Path) -> None:
    """Print the figures of all runs beside the paper's, and plot the fronts."""
    from snnet_mm.evaluation import plot_pareto

    by_name, found = {work_dir(run).name: run for run in runs}, {}
    for name, seeds in grouped(by_name, SEED).items():
        found[name] = [StitchTable.read(results_of(by_name[seed])) for seed in seeds]
        paper = figures(papers, by_name[seeds[0]].name) or 'none'
        print(f'{name}\n    paper: {paper}\n    ours:  {ends_of(found[name])}')
    means = {name: mean_of(seeds) for name, seeds in found.items()}
    for rates in grouped(found, RATE).values():
        if len(rates) > 1:
            sign = 1 if means[rates[0]].higher_is_better else -1
            score = {
                n: max(sign * s for s in means[n].scores().values()) for n in rates
            }
            best = max(rates, key=score.get)
            print(f'Best of {len(rates)} rates: {best}\n    {ends_of(found[best])}')
    drawn = [n for n, seeds in found.items() if STITCHED.search(n) or len(seeds) > 1]
    fronts = {
        name: joined([means[n] for n in names])
        for name, names in grouped(drawn, GAP_OR_RATE).items()
    }
    if not fronts:
        return
    fronts |= {Path(path).stem: StitchTable.read(CONFIGS / path) for path in published}
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
