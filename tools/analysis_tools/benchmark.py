"""All benchmarks: ``tools/analysis_tools/benchmark.py --only NAME[,NAME]``.

A part is a file of ``benchmarks/``: its name, with ``-`` for ``_``, is the name of the
part, its docstring says what is measured, and its ``run()`` gives the figures as plain
data. Two things are compared by timing them in turn in one process.
"""

import argparse
import json
import os
import platform
import time
from importlib import import_module
from pathlib import Path

import torch
from rich import box
from rich.table import Table

from snnet_mm.evaluation import wide_console
from snnet_mm.utils import atomic_path

FOLDER = Path(__file__).parent / 'benchmarks'


def part_names() -> list[str]:
    files = (p.stem for p in FOLDER.glob('*.py') if not p.stem.startswith('_'))
    return sorted(name.replace('_', '-') for name in files)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--only', help=f'parts to run, of {", ".join(part_names())} (default: all)'
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('work_dirs/benchmark'),
        help='folder for NAME.json of every part (default: %(default)s)',
    )
    return parser.parse_args()


def choose(only: str | None) -> list[str]:
    """The parts that are asked for.

    Raises:
        ValueError: For one that does not exist.
    """
    names = part_names() if only is None else only.split(',')
    for name in names:
        if name not in part_names():
            raise ValueError(f'--only {name}: allowed are {", ".join(part_names())}')
    return names


def machine() -> dict:
    """What the figures of a run depend on."""
    processor = platform.processor() or platform.machine()
    if (info := Path('/proc/cpuinfo')).exists():
        names = [x for x in info.read_text().splitlines() if x.startswith('model name')]
        processor = names[0].partition(':')[2].strip() if names else processor
    return dict(
        processor=processor,
        cores=os.cpu_count(),
        load_average=os.getloadavg()[0],
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        torch=torch.__version__,
        threads=torch.get_num_threads(),
    )


def report(name: str, title: str, figures: dict) -> None:
    """Print the figures of a part; a list of dicts becomes a table, a dict a list."""
    console = wide_console()
    console.print(f'\n[bold]{name}[/bold]: {title}')
    for key, value in figures.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            heads = [head.replace('_', ' ') for head in value[0]]
            table = Table(*heads, title=key, box=box.SIMPLE, title_justify='left')
            for row in value:
                table.add_row(*(_short(cell) for cell in row.values()))
            console.print(table)
        elif isinstance(value, dict):
            console.print(f'  {key}:')
            for inner, figure in value.items():
                console.print(f'    {inner}: {_short(figure)}')
        else:
            console.print(f'  {key}: {_short(value)}')


def _short(value: object) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def main() -> None:
    args = parse_args()
    for name in choose(args.only):
        part = import_module(f'benchmarks.{name.replace("-", "_")}')
        about, start = machine(), time.perf_counter()
        figures = part.run()
        figures['seconds'] = time.perf_counter() - start
        report(name, part.__doc__.splitlines()[0], figures)
        with atomic_path(args.out / f'{name}.json') as path:
            path.write_text(json.dumps(dict(machine=about, figures=figures), indent=2))


if __name__ == '__main__':
    main()
