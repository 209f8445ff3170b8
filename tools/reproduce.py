"""Reproduce a table or figure: ``tools/reproduce.py 'SN-Netv2 table 2'`` or ``--list``.

Trains and tests its configs one after another, plots their fronts, and prints their
figures beside the paper's. Finished trainings and tests are skipped; an interrupted
training is resumed. ``configs/papers.yml`` lists all tables and figures. Its ``small``
sets iterations, batch size and number of images of small runs.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / 'configs' / 'papers.yml'
PAGE = ROOT / 'docs' / 'explanation' / 'reproducing.md'
COLUMNS = dict(
    paper='in the paper',
    configs='configs',
    data='data, weights',
    hardware='hardware of the paper',
    here='run here',
    state='state',
)
# Name parts of stitched models, whose stitches are all tested.
STITCHED = re.compile(r'snnet|bridge-|esta-|stitch|fast-slow')
# A checkpoint of another config's training, from which a config starts.
BEGINNING = re.compile(r'work_dirs/([^/]+)/iter_\d+\.pth')


class Job(NamedTuple):
    """A config to train and test, or a variant of it with overridden settings."""

    config: Path
    variant: str = ''
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return '-'.join(filter(None, [self.config.stem, self.variant]))

    @property
    def stitched(self) -> str:
        """The part of the name that identifies a stitched model, otherwise ''."""
        model = next(filter(STITCHED.search, self.config.stem.split('_')), '')
        return model and '-'.join(filter(None, [model, self.variant]))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('item', nargs='?', help="a table or figure, such as 'SN-Netv2 table 2'")
    add('--list', action='store_true', help='print all tables and figures')
    add('--small', action='store_true', help='the small runs, for a CPU, in its place')
    what = """iterations of each training, 0 for those of the config (default: 0, and
        with --small what the list says)"""
    add('--iters', type=int, help=what)
    add('--dry-run', action='store_true', help='print the commands alone')
    launchers = dict(choices=('none', 'pytorch', 'slurm'), default='none')
    add('--launcher', **launchers, help='job launcher (default: none)')
    add('--gpus', type=int, default=8, help='GPUs of a launcher (default: 8)')
    add('--partition', default='gpu', help="Slurm's partition (default: gpu)")
    what = 'only the config with this number, from 0, as in a job array'
    add('--job', type=int, help=what)
    add(
        '--write-docs',
        action='store_true',
        help=f'write {PAGE.relative_to(ROOT)} and its pages',
    )
    return parser.parse_args()


def pages(papers: Mapping) -> dict[Path, str]:
    """Return the documentation by path: an overview and one page per paper."""
    links, found = [], {}
    for paper in papers['papers']:
        keys = [k for k in COLUMNS if any(k in item for item in paper['items'])]
        rows = [[COLUMNS[k] for k in keys], ['---'] * len(keys)]
        rows += [[item.get(k, '') for k in keys] for item in paper['items']]
        lines = ['| ' + ' | '.join(row) + ' |' for row in rows]
        lines[1] = '|' + '---|' * len(keys)
        parts = [f'# {paper["title"]}', '\n'.join(lines), paper.get('after', '')]
        path = PAGE.with_stem(f'{PAGE.stem}_{paper["name"].lower().replace("-", "_")}')
        found[path] = '\n\n'.join(part.strip() for part in parts if part) + '\n'
        links.append(f'- [{paper["title"]}]({path.name})')
    head = papers['head'].strip(), '## Papers', '\n'.join(links)
    return found | {PAGE: '\n\n'.join(head) + '\n'}


def find_items(papers: Mapping, wanted: str) -> list[dict]:
    """Return the items of a table or figure, one per part."""
    names = {}
    for paper in papers['papers']:
        for item in paper['items']:
            for name in item['ids']:
                names.setdefault(f'{paper["name"]} {name}', []).append(item)
    if wanted not in names:
        raise ValueError(f'{wanted!r} is none of the tables and figures: see --list')
    return names[wanted]


def find_jobs(items: list[dict], small: bool) -> list[Job]:
    """Return the configs of items and their variants, in the order of the list.

    If any config is a stitched model, only stitched models have variants.
    """
    key, found = 'small' if small else 'train', []
    for item in items:
        jobs = []
        for pattern in item.get(key, ()):
            here = sorted((ROOT / 'configs').glob(f'{pattern}.py'))
            assert here, pattern
            jobs += map(Job, here)
        varied = [job for job in jobs if job.stitched] or jobs
        for job in jobs:
            variants = item.get('variants', {}) if job in varied else {}
            found.append(job)
            for name, parts in variants.items():
                found.append(Job(job.config, name, tuple(flattened(parts))))
    if not found:
        what = 'no small run' if small else 'no config'
        notes = '; '.join(item['state'] for item in items)
        raise ValueError(f'There is {what} of it ({notes})')
    return list({job.name: job for job in found}.values())


def flattened(options: list) -> Iterator[str]:
    """Yield the options of a list that may include the lists of other variants."""
    for option in options:
        yield from flattened(option) if isinstance(option, list) else [option]


def work_dir(name: str, args: argparse.Namespace) -> Path:
    """Return the folder of a job; short runs do not share that of a full training."""
    return Path('work_dirs', f'{args.iters}-iterations' if args.iters else '', name)


def settings(job: Job, args: argparse.Namespace) -> list[str]:
    """Return the overrides of a job: its variant, and the limits of a short run.

    ``MODEL`` in a variant is the config key of the classifier, inside a wrapper or not.
    A short run starts from checkpoints of short runs. A small run skips validation, and
    fits and tests with few images.
    """
    if not (args.iters or job.options):
        return []
    from snnet_mm.utils import load_config

    cfg = load_config(str(job.config))
    model = cfg.model
    key = 'model.model' if 'model' in model else 'model'
    found = [option.replace('MODEL', key) for option in job.options]

    def search(part: object, key: str) -> None:
        if isinstance(part, str) and (match := BEGINNING.fullmatch(part)):
            checkpoint = work_dir(match[1], args) / f'iter_{args.iters}.pth'
            found.append(f'{key}={checkpoint}')
        parts = part.items() if isinstance(part, Mapping) else ()
        parts = enumerate(part) if isinstance(part, list | tuple) else parts
        for name, value in parts:
            search(value, f'{key}.{name}')

    if args.iters:
        search(model, 'model')
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


def command(job: Job, args: argparse.Namespace, checkpoint: str = '') -> list[str]:
    """Return the training command or, given a checkpoint, the test command."""
    tool, path = 'test' if checkpoint else 'train', os.path.relpath(job.config)
    tools, given = os.path.relpath(ROOT / 'tools'), [path, *filter(None, [checkpoint])]
    work = work_dir(job.name, args)
    if checkpoint:
        options = ['--work-dir', str(work / 'test')]
        ids = re.search(r'sampler\.ids=\[(.+?)\]', ' '.join(job.options))
        if job.stitched:  # all stitches, or those that the variant trains
            options += ['--stitch-id', ids[1] if ids else 'all']
        if args.iters and job.stitched:
            options += ['--limit', str(args.images)]
    else:
        options = ['--work-dir', str(work), '--resume']
        options += ['--iters', str(args.iters)] if args.iters else []
    options += settings(job, args)
    if args.launcher == 'pytorch':
        script = ['bash', f'{tools}/dist_{tool}.sh']
        return [*script, *given, str(args.gpus), *options]
    if args.launcher == 'slurm':
        script = ['env', f'GPUS={args.gpus}', 'bash', f'{tools}/slurm_{tool}.sh']
        return [*script, args.partition, job.name, *given, *options]
    return [sys.executable, f'{tools}/{tool}.py', *given, *options]


def results_of(job: Job, args: argparse.Namespace) -> Path | None:
    """Return the newest test results of a job, None if there are none."""
    found = [
        path
        for name in ('stitches.json', 'results.json')
        for path in (work_dir(job.name, args) / 'test').rglob(name)
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
    if args.dry_run:
        print(shlex.join(command(job, args)))
        shown = shlex.join(command(job, args, 'CHECKPOINT'))
        print(shown.replace('CHECKPOINT', f'$(cat {last})'))
        return
    if not trained.exists():
        run(command(job, args))
        trained.touch()
    if results_of(job, args) is None:
        run(command(job, args, last.read_text().strip()))


def rows(jobs: list[Job], args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield name, the paper's figures from the config's header, and ours per job."""
    from snnet_mm.stitching import StitchTable

    for job in jobs:
        lines = job.config.read_text().splitlines()
        head = ' '.join(line.lstrip('# ') for line in lines if line.startswith('#'))
        figures = re.search(r'(?:Paper: |figure in the )(.*?)[.;] [oO]urs', head)
        figures = figures[1] if figures and not job.variant else 'none'
        ours, path = 'not tested', results_of(job, args)
        if path is not None:
            results = StitchTable.read(path)
            scores, costs = results.scores(), results.column('flops')
            ends = sorted(scores, key=costs.get)[:: max(len(scores) - 1, 1)]
            score = ' - '.join(f'{scores[i]:.4g}' for i in ends)
            cost = ' - '.join(f'{costs[i] / 1e9:.3g}' for i in ends)
            ours = f'{score} {results.metric} at {cost} GFLOPs'
        yield job.name, figures, ours


def draw(
    jobs: list[Job], items: list[dict], out: Path, args: argparse.Namespace
) -> None:
    """Plot the fronts of all tested stitched configs, and published ones."""
    tested = [(job.stitched, results_of(job, args)) for job in jobs if job.stitched]
    tested = [(name, path) for name, path in tested if path is not None]
    if not tested:
        return
    others = [['--compare', name, str(path)] for name, path in tested[1:]]
    for item in items:
        if 'published' in item:
            path = ROOT / 'configs' / item['published']
            others.append(['--compare', path.stem, str(path)])
    tool = str(ROOT / 'tools' / 'analysis_tools' / 'plot_pareto.py')
    first = [sys.executable, tool, str(tested[0][1]), '--out', str(out)]
    run([*first, *(part for other in others for part in other)])


def main() -> None:
    args = parse_args()
    papers = yaml.safe_load(LIST.read_text())
    if args.write_docs:
        for path, text in pages(papers).items():
            path.write_text(text)
        return
    if args.list or args.item is None:
        for paper in papers['papers']:
            for item in paper['items']:
                names = ', '.join(item['ids'])
                print(f'{paper["name"]} {names}: {item["state"]}')
        return
    items = find_items(papers, args.item)
    jobs = find_jobs(items, args.small)
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
    for row in rows(jobs, args):
        print('{}\n    paper: {}\n    ours:  {}'.format(*row))


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {error}')
