"""Run benchmarks: ``tools/research/benchmark.py --only NAME[,NAME]``.

Every part is a function of ``benchmarks.py``, whose docstring describes what is
measured. Parts compare two things by timing them alternately in one process.
"""

import argparse
import time
from pathlib import Path

from rich import print, print_json

from snnet_mm.utils import ToolParser, check, machine, run_command, write_json

PARTS = ['forward', 'widths', 'one-pass', 'training']


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

    import benchmarks

    for name in names:
        part, about = getattr(benchmarks, name.replace('-', '_')), machine()
        start = time.perf_counter()
        figures = part()
        figures['seconds'] = time.perf_counter() - start
        print(f'\n[bold]{name}[/bold]: {part.__doc__.splitlines()[0]}')
        print_json(data=figures)
        write_json(args.out / f'{name}.json', dict(machine=about, figures=figures))


if __name__ == '__main__':
    run_command(main)
