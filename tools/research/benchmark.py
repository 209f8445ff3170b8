"""Run benchmarks: ``tools/research/benchmark.py --only NAME[,NAME]``.

A part is a file of ``benchmarks/``, named after it with ``-`` for ``_``. Its docstring
describes the measurement, and its ``run()`` returns the figures as plain data. Parts
compare two things by timing them alternately in one process.
"""

import argparse
import time
from importlib import import_module
from pathlib import Path

from rich import print, print_json

from snnet_mm.utils import ToolParser, check, machine, run_command, write_json

FOLDER = Path(__file__).parent / 'benchmarks'
PARTS = sorted(p.stem.replace('_', '-') for p in FOLDER.glob('[!_]*.py'))


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    words = f'parts to run, of {", ".join(PARTS)} (default: all)'
    parser.add_argument('--only', default=','.join(PARTS), help=words)
    words = 'folder for NAME.json of every part (default: %(default)s)'
    parser.add_argument('--out', type=Path, default='work_dirs/benchmark', help=words)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    names = args.only.split(',')
    for name in names:
        check(name in PARTS, '--only', name, PARTS)
    for name in names:
        part = import_module(f'benchmarks.{name.replace("-", "_")}')
        about, start = machine(), time.perf_counter()
        figures = part.run()
        figures['seconds'] = time.perf_counter() - start
        print(f'\n[bold]{name}[/bold]: {part.__doc__.splitlines()[0]}')
        print_json(data=figures)
        write_json(args.out / f'{name}.json', dict(machine=about, figures=figures))


if __name__ == '__main__':
    run_command(main)
