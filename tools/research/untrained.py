"""Compare ways to smaller budgets without training: ``tools/research/untrained.py``.

Takes the config of a trained network and its checkpoints, one for each seed. All
methods read the same training images and are tested on the same test images; FLOPs of
all are counted by torch on a run of the backbone. Results of a method are kept in the
work directory, so that an interrupted call goes on. The table has a line for each
method, budget and seed, and one for the mean over the seeds. ``against`` is the metric
minus that of the line through the network and make_elastic's budgets at equal FLOPs,
``low`` and ``high`` its 95 % interval of a paired bootstrap over the images.

Methods are functions of ``untrained_methods.py``, and six more: by make_elastic
``ours``, ``one_size`` (the same without smaller images), ``blocks`` (whole blocks) and
``sizes`` (the whole network on smaller images); ``int8`` by an exported graph; and
``trained``, which is not run by default: the chain of half of the FLOPs, trained with
labels for as long as the network.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from snnet_mm.utils import ToolParser, check_file, run_command

sys.path.append(str(Path(__file__).parent))
from results import UNTRAINED, write_lines  # noqa: E402

METHODS = (
    'ours', 'one_size', 'blocks', 'sizes', 'corp', 'snapvit', 'vbp', 'one_map',
    'identity', 'expedit', 'tome', 'int8', 'trained',
)  # fmt: skip
INTERVAL = 'against', 'low', 'high'
COMMANDS = 'docs/explanation/untrained.md#commands'


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.partition('\n')[0])
    add = parser.add_argument
    add('config', help='config of a trained model')
    add('checkpoints', nargs='+', help='its checkpoints, one for each seed')
    for name in ('--run', '--network', '--data'):
        add(name, required=True, help=f'{name[2:]} in the table')
    what = 'methods to run now, after ours (default: all but trained)'
    add('--methods', nargs='+', default=METHODS[:-1], choices=METHODS, help=what)
    what = 'budgets in percent of the FLOPs (default: %(default)s)'
    add('--budgets', nargs='+', type=float, default=[75, 50, 33, 25, 15], help=what)
    what = "budgets are shares of the branches' FLOPs, not of all FLOPs"
    add('--of-branches', action='store_true', help=what)
    what = 'number of training images to fit on (default: %(default)s)'
    add('--images', type=int, default=200, help=what)
    what = 'folder for the results of every run (default: %(default)s)'
    add('--work-dir', type=Path, default=Path('work_dirs/untrained'), help=what)
    add('--table', type=Path, default=UNTRAINED, help='table (default: %(default)s)')
    parser.add_cfg_options()
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    for checkpoint in args.checkpoints:
        check_file(checkpoint, 'argument: checkpoints')

    from untrained_runs import Comparison, lines_of

    folder = args.work_dir / args.run
    seeds = [folder / str(seed) for seed in range(len(args.checkpoints))]
    for checkpoint, seed in zip(args.checkpoints, seeds, strict=True):
        comparison = Comparison(args, checkpoint, seed)
        for method in dict.fromkeys(('ours', *args.methods)):
            comparison.run(method)
    about = dict(run=args.run, network=args.network, data=args.data, commands=COMMANDS)
    lines = [about | line for line in lines_of(seeds, METHODS)]
    write_lines(lines, args.table, INTERVAL)
    print(markdown(lines))
    print(f'{args.table}: {len(lines)} lines of {args.run}')


def markdown(lines: Sequence[dict[str, str]]) -> str:
    """Return a table of the mean over the seeds: methods by budgets.

    Cells have the share of the metric in percent, and ``against`` with its interval.
    """
    lines = [line for line in lines if line['seed'] == lines[-1]['seed']]
    large = any(float(line['score']) > 10 for line in lines)  # in points
    digits = 1 if large else 3
    cells = {(line['kind'], line['budget']): cell(line, digits) for line in lines}
    budgets = [x['budget'] for x in lines if x['kind'] not in ('network', 'fp32')]
    return table_of(cells, budgets)


def overview(lines: Sequence[dict[str, str]], budget: str) -> str:
    """Return a table of shares of the metric at one budget: methods by runs.

    Means of several seeds, which stand last, replace those of each.
    """
    cells = {
        (line['kind'], line['data'].partition(',')[0]): f'{float(line["share"]):.1f}'
        for line in lines
        if line['budget'] == budget
    }
    return table_of(cells, (data for _, data in cells))


def table_of(cells: dict[tuple[str, str], str], columns: Iterable[str]) -> str:
    """Return a table of methods by columns, in the order of ``cells``."""
    head = ['method', *dict.fromkeys(columns)]
    rows = [head, ['---'] * len(head)]
    for kind in dict.fromkeys(kind for kind, _ in cells):
        if kind not in ('network', 'fp32'):
            rows.append([kind, *(cells.get((kind, name), '') for name in head[1:])])
    return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def cell(line: dict[str, str], digits: int) -> str:
    """Return the share of a line, and its difference from our budgets."""
    text = f'{float(line["share"]):.1f}'
    if line['against']:
        text += f', {float(line["against"]):+.{digits}f}'
    if line['low']:
        low, high = (float(line[name]) for name in ('low', 'high'))
        text += f' [{low:.{digits}f}, {high:.{digits}f}]'
    return text


if __name__ == '__main__':
    run_command(main)
