"""Write a config that trains a plain ViT on a folder of labelled images."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from snnet_mm.utils import ToolParser, run_command, tool_command

if TYPE_CHECKING:
    from snnet_mm.datasets.labelled_folder import LabelledFolder

COUNTED = dict(seg='pixels', det='objects', cls='images')


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__)
    add = parser.add_argument
    add(
        'folder',
        help='folder of images and labels; for layouts, see docs/tutorials/own_data.md',
    )
    add('--out', required=True, type=Path, help='config to write')
    what = 'seg(mentation), depth, det(ection) or cls (classification)'
    add('--task', required=True, choices=('seg', 'depth', 'det', 'cls'), help=what)
    what = 'plain ViT of timm (default: %(default)s)'
    add('--backbone', default='vit_small_patch14_dinov2', help=what)
    what = "weights file with timm's parameter names (default: timm downloads it)"
    add('--weights', help=what)
    what = 'class names of mask values 0, 1, ... (segmentation)'
    add('--classes', nargs='+', default=[], help=what)
    add('--force', action='store_true', help='replace an existing config')
    return parser.parse_args()


def print_findings(data: LabelledFolder) -> None:
    console = Console(highlight=False, soft_wrap=True)
    parts = []
    for name, split in data.splits.items():
        folder = split.prefix
        folder = folder if isinstance(folder, str) else ', '.join(folder.values())
        place = f' ({folder})' if folder not in ('', '.') else ''
        parts.append(f'{split.number} {name}{place}')
    sizes = [f'{w}x{h} ({n} images)' for (h, w), n in data.sizes.most_common(3)]
    more = f' and {len(data.sizes) - 3} other sizes' if len(data.sizes) > 3 else ''
    console.print(f'Images: {", ".join(parts)}; of {", ".join(sizes)}{more}')
    if data.task == 'depth':
        low, middle, high = (f'{x / 1000:.3g}' for x in data.facts['depths'])
        found = f'{low} to {high} m, median {middle} m'
        console.print(f'Depth range, if files are in millimetres: {found}')
    else:
        table = Table('label', 'class', COUNTED[data.task], 'share')
        for i, name in enumerate(data.classes):
            number, share = data.counts[name], data.counts[name] / data.counts.total()
            table.add_row(str(i), name, f'{number:,}', f'{share:.1%}')
        console.print(table)
    for note in data.notes:
        console.print(f'Note: {note}')


def main() -> None:
    args = parse_args()

    from snnet_mm.datasets.folders import TASKS, read_folder
    from snnet_mm.training.new_project import write_project

    classes = [*chain.from_iterable(x.split(',') for x in args.classes)]
    data = read_folder(args.folder, args.task, [x for x in classes if x])
    values = write_project(data, args.out, args.backbone, args.weights, args.force)
    print(f'Task: {TASKS[data.task]}')
    print_findings(data)
    trained = Path('work_dirs', args.out.stem, f'iter_{values["iters"]}.pth')
    height, width = values['size']
    print(f"""Wrote {args.out}: {width}x{height} pixels, {values['iters']} iterations
Next:
  {tool_command('train.py', args.out)}
  {tool_command('make_elastic.py', args.out, trained)}""")


if __name__ == '__main__':
    run_command(main)
