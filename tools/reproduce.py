"""Reproduce a table or figure: ``tools/reproduce.py 'SN-Netv2 table 2'`` or ``--list``.

Trains and tests its configs one after the other, draws their fronts, and prints their
figures beside the paper's. What was trained or tested before is not again; a training
that was interrupted is resumed. The list is ``configs/papers.yml``.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

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
# Names of configs of stitched models, all of whose stitches are tested.
STITCHED = re.compile(r'snnet|bridge-|esta-|stitch|fast-slow')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('item', nargs='?', help="a table or figure, such as 'SN-Netv2 table 2'")
    add('--list', action='store_true', help='print all tables and figures')
    add('--small', action='store_true', help='the small runs, for a CPU, in its place')
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
    """Return the pages of the documentation: an overview and one for each paper."""
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
    """Return the items of a table or figure; several where it has several parts."""
    names = {}
    for paper in papers['papers']:
        for item in paper['items']:
            for name in item['ids']:
                names.setdefault(f'{paper["name"]} {name}', []).append(item)
    if wanted not in names:
        raise ValueError(f'{wanted!r} is none of the tables and figures: see --list')
    return names[wanted]


def find_configs(items: list[dict], small: bool) -> list[Path]:
    """Return the configs of items, in the order of the list."""
    key, found = 'small' if small else 'train', []
    for pattern in (pattern for item in items for pattern in item.get(key, ())):
        here = sorted((ROOT / 'configs').glob(f'{pattern}.py'))
        assert here, pattern
        found += here
    if not found:
        what = 'no small run' if small else 'no config'
        notes = '; '.join(item['state'] for item in items)
        raise ValueError(f'There is {what} of it ({notes})')
    return list(dict.fromkeys(found))


def work_dir(config: Path) -> Path:
    return Path('work_dirs') / config.stem


def command(config: Path, args: argparse.Namespace, checkpoint: str = '') -> list[str]:
    """Return the command of a training, or of the test of a checkpoint."""
    tool, path = 'test' if checkpoint else 'train', os.path.relpath(config)
    tools, given = os.path.relpath(ROOT / 'tools'), [path, *filter(None, [checkpoint])]
    work = work_dir(config)
    if checkpoint:
        stitches = ['--stitch-id', 'all'] if STITCHED.search(config.stem) else []
        options = ['--work-dir', str(work / 'test'), *stitches]
    else:
        options = ['--work-dir', str(work), '--resume']
    if args.launcher == 'pytorch':
        script = ['bash', f'{tools}/dist_{tool}.sh']
        return [*script, *given, str(args.gpus), *options]
    if args.launcher == 'slurm':
        script = ['env', f'GPUS={args.gpus}', 'bash', f'{tools}/slurm_{tool}.sh']
        return [*script, args.partition, config.stem[:30], *given, *options]
    return [sys.executable, f'{tools}/{tool}.py', *given, *options]


def results_of(config: Path) -> Path | None:
    """Return the newest results of a test, if it was tested."""
    found = [
        path
        for name in ('stitches.json', 'results.json')
        for path in (work_dir(config) / 'test').rglob(name)
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def run(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    paths = str(ROOT), os.environ.get('PYTHONPATH')
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    if status := subprocess.run(command, env=env).returncode:
        raise ChildProcessError(f'{shlex.join(command)} ended with status {status}')


def reproduce(config: Path, args: argparse.Namespace) -> None:
    """Train and test a config, as far as that was not done."""
    trained, last = work_dir(config) / 'trained', work_dir(config) / 'last_checkpoint'
    if args.dry_run:
        print(shlex.join(command(config, args)))
        shown = shlex.join(command(config, args, 'CHECKPOINT'))
        print(shown.replace('CHECKPOINT', f'$(cat {last})'))
        return
    if not trained.exists():
        run(command(config, args))
        trained.touch()
    if results_of(config) is None:
        run(command(config, args, last.read_text().strip()))


def rows(configs: list[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield names of configs, the paper's figures, of their headers, and ours."""
    from snnet_mm.stitching import StitchResults

    for config in configs:
        lines = config.read_text().splitlines()
        head = ' '.join(line.lstrip('# ') for line in lines if line.startswith('#'))
        figures = re.search(r'(?:Paper: |figure in the )(.*?)[.;] [oO]urs', head)
        ours, path = 'not tested', results_of(config)
        if path is not None:
            results = StitchResults.read(path)
            scores, costs = results.scores(), results.column('flops')
            ends = sorted(scores, key=costs.get)[:: max(len(scores) - 1, 1)]
            score = ' - '.join(f'{scores[i]:.4g}' for i in ends)
            cost = ' - '.join(f'{costs[i] / 1e9:.3g}' for i in ends)
            ours = f'{score} {results.metric} at {cost} GFLOPs'
        yield config.stem, figures[1] if figures else 'none', ours


def draw(configs: list[Path], items: list[dict], out: Path) -> None:
    """Draw the fronts of all stitched configs, and the published one."""
    tested = [(c, results_of(c)) for c in configs if STITCHED.search(c.stem)]
    tested = [(c, path) for c, path in tested if path is not None]
    if not tested:
        return
    others = [['--compare', c.stem.split('_')[1], str(path)] for c, path in tested[1:]]
    for item in items:
        if 'published' in item:
            others += [
                ['--compare', 'paper', str(ROOT / 'configs' / item['published'])]
            ]
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
    configs = find_configs(items, args.small)
    if args.job is not None:
        if not 0 <= args.job < len(configs):
            raise ValueError(f'--job={args.job} is none of 0 to {len(configs) - 1}')
        configs = configs[args.job : args.job + 1]
    for config in configs:
        reproduce(config, args)
    if args.dry_run:
        return
    name = re.sub(r'\W+', '-', args.item) + ('-small' if args.small else '')
    draw(configs, [] if args.small else items, Path('work_dirs') / name)
    for row in rows(configs):
        print('{}\n    paper: {}\n    ours:  {}'.format(*row))


if __name__ == '__main__':
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {error}')
