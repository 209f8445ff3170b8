"""Reproduce a table or figure: ``tools/reproduce.py 'SN-Netv2 table 2'`` or ``--list``.

Trains and tests its runs one after another, plots their fronts, and prints their
figures beside the paper's. Finished trainings and tests are skipped; an interrupted
training is resumed. ``configs/papers.yml`` lists all tables and figures, and the runs,
which can also be given by name, such as ``'setr/*-r4_*'``. Its ``small`` sets
iterations, batch size and number of images of small runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from itertools import groupby
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

sys.path.append(str(Path(__file__).parent))  # also where another script runs this
from papers import (  # noqa: E402
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

if TYPE_CHECKING:
    from snnet_mm.stitching import StitchTable

# Name parts of stitched models, whose stitches are all tested.
STITCHED = re.compile(r'snnet|bridge-|esta-|stitch|fast-slow')
# A checkpoint of another config's training, from which a config starts.
BEGINNING = re.compile(r'work_dirs/([^/]+)/iter_\d+\.pth')


class Job(NamedTuple):
    """A run, or a variant of it with further overridden settings.

    ``tests`` are tests besides the usual one, by name, with overridden settings.
    Without a seed, it has that of its config.
    """

    run: Run
    variant: str = ''
    options: tuple[str, ...] = ()
    tests: Mapping[str, list] = {}
    seed: int | None = None

    @property
    def config(self) -> Path:
        return self.run.config

    @property
    def name(self) -> str:
        seed = '' if self.seed is None else f'seed-{self.seed}'
        return '-'.join(filter(None, [Path(self.run.name).name, self.variant, seed]))

    @property
    def data(self) -> str:
        """The part of the name that identifies the data set."""
        return Path(self.run.name).name.split('_', 2)[-1].rpartition('-')[0]

    @property
    def stitched(self) -> str:
        """The part of the name that identifies a stitched model, otherwise ''."""
        parts = Path(self.run.name).name.split('_')
        model = next(filter(STITCHED.search, parts), '')
        seed = None if self.seed is None else f'seed-{self.seed}'
        return model and '-'.join(filter(None, [model, self.variant, seed]))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    what = "a table or figure, such as 'SN-Netv2 table 2', or runs: 'setr/*-r4_*'"
    add('item', nargs='?', help=what)
    add('--list', action='store_true', help='print all tables and figures')
    add('--small', action='store_true', help='the small runs, for a CPU, in its place')
    what = """iterations of each training, 0 for those of the config (default: 0, and
        with --small what the list says)"""
    add('--iters', type=int, help=what)
    add('--dry-run', action='store_true', help='print the commands alone')
    launchers = dict(choices=('none', 'pytorch', 'slurm'), default='none')
    add('--launcher', **launchers, help='job launcher (default: none)')
    what = 'GPUs of a launcher (default: as many as the name of the config says)'
    add('--gpus', type=int, help=what)
    add('--partition', default='gpu', help="Slurm's partition (default: gpu)")
    what = """seeds to train each run with; figures are then means with standard errors.
        Only runs that start from published weights have seeds"""
    add('--seeds', type=int, nargs='+', default=[None], metavar='SEED', help=what)
    what = 'only the config with this number, from 0, as in a job array'
    add('--job', type=int, help=what)
    return parser.parse_args()


def find_items(papers: Mapping, wanted: str) -> list[dict]:
    """Return the items of a table or figure, one per part."""
    names = {}
    for paper in papers['papers']:
        for item in paper['items']:
            for name in item['ids']:
                names.setdefault(f'{paper["name"]} {name}', []).append(item)
    if wanted not in names:
        raise ValueError(
            f'{wanted!r} is none of the tables and figures, nor of the runs: see --list'
        )
    return names[wanted]


def find_jobs(items: list[dict], runs: Mapping[str, Run], small: bool) -> list[Job]:
    """Return the runs of items and their variants, in the order of the list.

    If any run is a stitched model, only stitched models have variants.
    """
    key, found = 'small' if small else 'train', []
    for item in items:
        jobs = []
        for pattern in item.get(key, ()):
            here = [run for name, run in runs.items() if fnmatch(name, pattern)]
            assert here, pattern
            jobs += (Job(run, options=run.options) for run in here)
        varied = [job for job in jobs if job.stitched] or jobs
        for job in jobs:
            variants = item.get('variants', {}) if job in varied else {}
            found.append(job)
            for name, parts in variants.items():
                options = *job.options, *flattened(parts)
                found.append(Job(job.run, name, options, item.get('tests', {})))
    if not found:
        what = 'no small run' if small else 'no config'
        notes = '; '.join(item['state'] for item in items)
        raise ValueError(f'There is {what} of it ({notes})')
    return list({job.name: job for job in found}.values())


def work_dir(name: str, args: argparse.Namespace) -> Path:
    """Return the folder of a job; short runs do not share that of a full training."""
    return Path('work_dirs', f'{args.iters}-iterations' if args.iters else '', name)


def settings(
    job: Job, args: argparse.Namespace, further: Iterable[str] = ()
) -> list[str]:
    """Return the overrides of a job: its options, and the limits of a short run.

    A short run starts from checkpoints of short runs. A small run skips validation, and
    fits and tests with few images.
    """
    seed = [] if job.seed is None else [f'randomness.seed={job.seed}']
    options = [*job.options, *seed, *further]
    if not (args.iters or options):
        return []
    cfg = read_config(job.config, options)
    found = options_of(options, cfg.model)

    def search(part: object, key: str) -> None:
        if isinstance(part, str) and (match := BEGINNING.fullmatch(part)):
            checkpoint = work_dir(match[1], args) / f'iter_{args.iters}.pth'
            found.append(f'{key}={checkpoint}')
        parts = part.items() if isinstance(part, Mapping) else ()
        parts = enumerate(part) if isinstance(part, list | tuple) else parts
        for name, value in parts:
            search(value, f'{key}.{name}')

    if args.iters:
        search(cfg.model, 'model')
    if args.iters and args.small:
        found.append(f'train_cfg.val_begin={args.iters + 1}')
        found.append(f'train_dataloader.batch_size={args.batch}')
        for name in ('stitch_init', 'stitch_statistics'):
            hook = cfg.default_hooks.get(name) or {}
            if hook.get('num_images'):
                found.append(f'default_hooks.{name}.num_images={args.images}')
        if not job.stitched:
            found.append(f'test_dataloader.dataset.indices={args.images}')
    return ['--cfg-options', *found] if found else []


def command(
    job: Job,
    args: argparse.Namespace,
    checkpoint: str = '',
    test: str = 'test',
    further: Iterable[str] = (),
) -> list[str]:
    """Return the training command or, given a checkpoint, a test command.

    A test writes to the folder ``test`` of the job, with ``further`` settings.
    """
    tool, path = 'test' if checkpoint else 'train', os.path.relpath(job.config)
    tools, given = os.path.relpath(ROOT / 'tools'), [path, *filter(None, [checkpoint])]
    work = work_dir(job.name, args)
    if checkpoint:
        options = ['--work-dir', str(work / test)]
        ids = re.search(r'sampler\.ids=\[(.+?)\]', ' '.join(job.options))
        if job.stitched:  # all stitches, or those that the variant trains
            options += ['--stitch-id', ids[1] if ids else 'all']
        if args.iters and job.stitched:
            options += ['--limit', str(args.images)]
    else:
        options = ['--work-dir', str(work), '--resume']
        options += ['--iters', str(args.iters)] if args.iters else []
    options += settings(job, args, further)
    # As many as give the paper's batch.
    gpus = str(args.gpus or re.search(r'_(\d+)xb\d', job.run.name)[1])
    if args.launcher == 'pytorch':
        script = ['bash', f'{tools}/dist_{tool}.sh']
        return [*script, *given, gpus, *options]
    if args.launcher == 'slurm':
        script = ['env', f'GPUS={gpus}', 'bash', f'{tools}/slurm_{tool}.sh']
        return [*script, args.partition, job.name, *given, *options]
    return [sys.executable, f'{tools}/{tool}.py', *given, *options]


def results_of(job: Job, args: argparse.Namespace, test: str = 'test') -> Path | None:
    """Return the newest results of a test of a job, None if there are none."""
    found = [
        path
        for name in ('stitches.json', 'results.json')
        for path in (work_dir(job.name, args) / test).rglob(name)
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def run(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    paths = str(ROOT), os.environ.get('PYTHONPATH')
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    if status := subprocess.run(command, env=env).returncode:
        raise ChildProcessError(f'{shlex.join(command)} ended with status {status}')


def reproduce(job: Job, args: argparse.Namespace) -> None:
    """Train and test a config, skipping finished steps."""
    work = work_dir(job.name, args)
    trained, last = work / 'trained', work / 'last_checkpoint'
    tests = {'test': (), **{f'test-{k}': flattened(v) for k, v in job.tests.items()}}
    if args.dry_run:
        print(shlex.join(command(job, args)))
        for test, options in tests.items():
            shown = shlex.join(command(job, args, 'CHECKPOINT', test, options))
            print(shown.replace('CHECKPOINT', f'$(cat {last})'))
        return
    if not trained.exists():
        run(command(job, args))
        trained.touch()
    for test, options in tests.items():
        if results_of(job, args, test) is None:
            run(command(job, args, last.read_text().strip(), test, options))


def rows(
    jobs: list[Job], papers: Mapping, args: argparse.Namespace
) -> Iterator[tuple[str, str, str]]:
    """Yield name, the paper's figures from the registry, and ours per job.

    Ours are means over seeds.
    """
    for name, of_seeds in groupby(jobs, lambda job: job._replace(seed=None).name):
        same = [*of_seeds]
        paper = '' if same[0].variant else figures(papers, same[0].run.name)
        yield name, paper or 'none', ends_of(tables_of(same, args))


def tables_of(jobs: list[Job], args: argparse.Namespace) -> list[StitchTable]:
    """Return the results of the jobs that were tested."""
    from snnet_mm.stitching import StitchTable

    paths = (results_of(job, args) for job in jobs)
    return [StitchTable.read(path) for path in paths if path is not None]


def ends_of(tables: list[StitchTable]) -> str:
    """Return scores and costs of the cheapest and the most expensive stitch.

    Scores of several tables are means with standard errors.
    """
    if not tables:
        return 'not tested'
    scores, costs = [table.scores() for table in tables], tables[0].column('flops')
    ends = sorted(scores[0], key=costs.get)[:: max(len(scores[0]) - 1, 1)]
    texts = []
    for i in ends:
        found = [of[i] for of in scores]
        error = f' ± {stdev(found) / sqrt(len(found)):.2g}' if len(found) > 1 else ''
        texts.append(f'{fmean(found):.4g}{error}')
    cost = ' - '.join(f'{costs[i] / 1e9:.3g}' for i in ends)
    return f'{" - ".join(texts)} {tables[0].metric} at {cost} GFLOPs'


def means(
    jobs: list[Job], items: list[dict], args: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """Yield name and figures of means over groups of data sets, as for VTAB.

    The mean scores of all stitches are written to ``work_dirs``, to be plotted. The
    mean of all groups weighs groups equally.
    """
    groups = next((item['means'] for item in items if 'means' in item), {})
    by_model: dict[str, list[Job]] = {}
    for job in jobs:
        model = Path(job.run.name).name.partition('_')[0]
        model = '-'.join(filter(None, [model, job.variant]))
        by_model.setdefault(model, []).append(job)
    for model, same in by_model.items():
        found = {}
        for group, names in groups.items():
            tables = [tables_of([j for j in same if j.data == n], args) for n in names]
            if all(tables):
                found[group] = mean_of(sum(tables, []))
        if groups and len(found) == len(groups):
            found['all'] = mean_of([*found.values()])
        for group, table in found.items():
            path = Path('work_dirs', f'{model}-{group}.json')
            table.save(path)
            yield f'{model}, mean of {group} ({path})', ends_of([table])


def mean_of(tables: list[StitchTable]) -> StitchTable:
    """Return the mean scores of the stitches of several tables."""
    metric, scores = tables[0].metric, [table.scores() for table in tables]
    ids = [i for i in scores[0] if all(i in of for of in scores)]
    found = {i: {metric: fmean(of[i] for of in scores)} for i in ids}
    return tables[0].with_metrics(found)


def draw(
    jobs: list[Job], items: list[dict], out: Path, args: argparse.Namespace
) -> None:
    """Plot the fronts of all tested stitched configs, and published ones."""
    from snnet_mm.evaluation import plot_pareto
    from snnet_mm.stitching import StitchTable

    stitched = [job for job in jobs if job.stitched]
    tested = [(j.stitched, table) for j in stitched for table in tables_of([j], args)]
    if not tested:
        return
    published = [CONFIGS / item['published'] for item in items if 'published' in item]
    others = [(path.stem, StitchTable.read(path)) for path in published]
    plot_pareto(tested[0][1], out, others=[*tested[1:], *others])
    print(f'Wrote {out}')


def main() -> None:
    args = parse_args()
    papers = read_papers()
    if args.list or args.item is None:
        for paper in papers['papers']:
            for item in paper['items']:
                names = ', '.join(item['ids'])
                print(f'{paper["name"]} {names}: {item["state"]}')
        return
    runs = read_runs(papers)
    named = [run for name, run in runs.items() if fnmatch(name, args.item)]
    items = [] if named else find_items(papers, args.item)
    jobs = [Job(run, options=run.options) for run in named]
    jobs = jobs or find_jobs(items, runs, args.small)
    jobs = [job._replace(seed=seed) for job in jobs for seed in args.seeds]
    if args.iters is None:
        args.iters = papers['small']['iters'] if args.small else 0
    args.images, args.batch = papers['small']['images'], papers['small']['batch']
    if args.job is not None:
        if not 0 <= args.job < len(jobs):
            raise ValueError(f'--job={args.job} is none of 0 to {len(jobs) - 1}')
        jobs = jobs[args.job : args.job + 1]
    for job in jobs:
        reproduce(job, args)
    if args.dry_run:
        return
    name = re.sub(r'\W+', '-', args.item) + ('-small' if args.small else '')
    draw(jobs, [] if args.small else items, Path('work_dirs', f'{name}.png'), args)
    for row in rows(jobs, papers, args):
        print('{}\n    paper: {}\n    ours:  {}'.format(*row))
    for row in means(jobs, items, args):
        print('{}\n    ours:  {}'.format(*row))


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {error}')
