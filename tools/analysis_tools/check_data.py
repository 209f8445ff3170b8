"""Look at all data before a training: ``tools/analysis_tools/check_data.py CONFIG``.

Finds files that cannot be read, sizes that disagree, labels outside the classes, empty
annotations and more, counts the classes, and ends with code 1 if something is wrong.
Writes ``data_check.json`` and ``class_frequencies.png``.
"""

import argparse
import json
import os.path as osp
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from mmengine.config import DictAction
from mmengine.registry import init_default_scope
from rich.progress import track
from rich.table import Table

from snnet_mm.datasets import CheckedSplit, Look, check_split, samples_of
from snnet_mm.evaluation import plot_class_frequencies, wide_console
from snnet_mm.utils import atomic_path, check_ops_for, check_writable, load_config

SPLITS = 'train', 'val', 'test'
SHOWN = 5


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file path')
    parser.add_argument(
        '--split',
        nargs='+',
        choices=SPLITS,
        help='dataloaders to look at (default: all; test if it is not that of val)',
    )
    parser.add_argument(
        '--workers', type=int, default=1, help='processes that read files (default: 1)'
    )
    parser.add_argument(
        '--out', type=Path, help='output folder (default: work_dirs/NAME OF THE CONFIG)'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='override settings of the config, in the form of key=value pairs',
    )
    args = parser.parse_args()
    if args.workers < 1:
        parser.error(f'--workers {args.workers}: allowed is 1 or more')
    return args


def show_progress(looks: Iterator[Look], number: int, split: str) -> Iterable[Look]:
    return track(looks, f'Looking at {split}', total=number, console=wide_console())


def problem_table(checked: Iterable[CheckedSplit]) -> Table:
    table = Table(title='Problems')
    for name in ('split', 'problem', 'number', f'first {SHOWN}'):
        table.add_column(name, justify='right' if name == 'number' else 'left')
    for split in checked:
        for kind, (number, first) in split.problems.items():
            lines = (f'{file} {details}'.strip() for file, details in first[:SHOWN])
            table.add_row(split.name, kind, str(number), '\n'.join(lines))
    return table


def class_table(checked: list[CheckedSplit]) -> Table:
    table = Table(title=f'Frequencies, in {checked[0].unit}')
    table.add_column('class')
    for split in checked:
        table.add_column(split.name, justify='right')
        table.add_column('%', justify='right')
        table.add_column('images', justify='right')
    for name in dict.fromkeys(name for split in checked for name in split.counts):
        row = []
        for split in checked:
            count, total = split.counts.get(name, 0), sum(split.counts.values())
            share = f'{100 * count / max(total, 1):.2f}'
            row += [f'{count:,}', share, f'{split.images.get(name, 0):,}']
        table.add_row(name, *row)
    return table


def main() -> None:
    args = parse_args()
    name = osp.splitext(osp.basename(args.config))[0]
    cfg = load_config(args.config, args.cfg_options)
    out = check_writable(args.out or Path('work_dirs') / name, 'option: --out')
    check_ops_for(cfg)
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    splits = args.split or [s for s in SPLITS if cfg.get(f'{s}_dataloader')]
    same = cfg.get('test_dataloader') == cfg.get('val_dataloader')
    if args.split is None and same and 'val' in splits:
        splits.remove('test')
    checked: list[CheckedSplit] = []
    for split in splits:
        samples, classes, problems = samples_of(cfg, split)
        if checked and list(checked[0].counts) != classes:
            first = checked[0].name
            problems.append((f'other classes than {first}', split, ', '.join(classes)))
        progress = partial(show_progress, split=split)
        looked = check_split(split, samples, classes, problems, args.workers, progress)
        checked.append(looked)
    console = wide_console()
    console.print(class_table(checked))
    number = sum(split.num_problems for split in checked)
    if number:
        console.print(problem_table(checked))
    with atomic_path(out / 'data_check.json') as temporary:
        found = [split.to_dict() for split in checked]
        temporary.write_text(json.dumps(found, indent=1))
    by_split = {split.name: split.counts for split in checked}
    plot_class_frequencies(by_split, checked[0].unit, out / 'class_frequencies.png')
    samples = sum(split.num_samples for split in checked)
    console.print(
        f'{number} problems in {samples} images; wrote data_check.json and '
        f'class_frequencies.png to {out}',
        soft_wrap=True,
    )
    sys.exit(1 if number else 0)


if __name__ == '__main__':
    main()
