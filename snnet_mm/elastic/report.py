"""Table and pictures of an elastic network."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.runner import Runner
from rich.table import Table

from snnet_mm.evaluation import plot_images
from snnet_mm.evaluation.pictures.prediction_drawer import image_of
from snnet_mm.exports.description import left_of
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import UNITS, StitchRow, StitchTable
from snnet_mm.tasks import task_of
from snnet_mm.utils import plural, tool_command
from snnet_mm.utils.configs import takes_rgb

from .runtime_costs import precisions_of

NUM_PICTURES = 4


def elastic_table(results: StitchTable, in_runtime: bool = False) -> Table:
    """Return a table of the network and the budgets on the front, one row each.

    The last column is the share of the network's score. If lower is better, it is the
    relative increase of the error. If milliseconds are those of the runtime, they have
    a precision.
    """
    network, front = results[0], _front(results)
    whole = results.score(network)
    title = f'The network, untouched, and {plural(len(front), "budget")} below it'
    left = ', '.join(str(r.id) for r in results.rows if r.id and r not in front)
    caption = f'ms: a forward of the network alone in PyTorch, {network.setup}'
    if in_runtime:
        caption = f'ms: from an image to its prediction, {network.setup.device}; '
        caption += 'metrics: in PyTorch'
    if left:
        caption += f'\nNot listed, as others are as good and at least as fast: {left}'
    metric = results.metric.rsplit('/')[-1]
    if results.higher_is_better and not whole:
        caption += f'\n{metric} of the network is 0: it cannot rank the budgets'
    table = Table(title=title, caption=caption)
    units = [UNITS[key] for key in ('latency', 'flops', 'params')]
    last = "of network's" if results.higher_is_better else 'more error'
    runs = ['precision'] if in_runtime else []
    for name in ('', *runs, *(u.heading for u in units), 'of FLOPs', metric, last):
        table.add_column(name, justify='right' if name else 'left')
    for row in sorted([network, *front], key=lambda row: -row.latency):
        costs = (row.latency, row.flops, row.params)
        cells = [unit.cell(cost) for unit, cost in zip(units, costs, strict=True)]
        score = results.score(row)
        share = ''
        if whole and results.higher_is_better:
            share = f'{score / whole:.1%}'
        elif whole and row.id:
            share = f'{score / whole - 1:+.1%}'
        name = f'stitch {row.id}' if row.id else 'network'
        style = None if row.id else 'bold'
        share_of_flops = f'{row.flops / network.flops:.0%}'
        own = [row.precision] if in_runtime else []
        cells = name, *own, *cells, share_of_flops, f'{score:.4g}', share
        table.add_row(*cells, style=style)
    return table


def _front(results: StitchTable) -> list[StitchRow]:
    """Return the rows on the front over milliseconds, without the network's."""
    return [row for row in results.front('latency') if row.id]


def drawn_budgets(results: StitchTable) -> dict[int, str]:
    """Return headings of the network, and the front's middle and fastest stitch."""
    front = [row.id for row in _front(results)]
    chosen = [0, *front[len(front) // 2 : len(front) // 2 + 1], *front[:1]]
    return {
        i: f'{f"stitch {i}" if i else "network"}, {results[i].latency:.3g} ms'
        for i in chosen
    }


@torch.no_grad()
def draw_predictions(runner: Runner, titles: Mapping[int, str], path: Path) -> None:
    """Draw test images, their ground truth and the predictions of some stitches.

    ``titles`` are the headings of columns by stitch id.
    """
    model, visualizer = runner.model, runner.visualizer
    dataset, task, rows = runner.test_dataloader.dataset, task_of(visualizer), []
    number = min(NUM_PICTURES, len(dataset))
    for i in (n * len(dataset) // number for n in range(number)):
        item, row = dataset[i], []
        for stitch in titles:
            set_stitch(model, stitch)
            samples = [item['data_samples'].clone()]
            batch = dict(inputs=[item['inputs']], data_samples=samples)
            (sample,) = model.test_step(batch)
            shown = image_of(item['inputs'], sample, not takes_rgb(runner.cfg))
            # Class names would cover small images.
            plain = dict(with_labels=False) if 'pred_sem_seg' in sample else {}
            with TemporaryDirectory() as folder:
                file = str(Path(folder, 'a.png'))
                task.draw(visualizer, 'a', shown, sample, out_file=file, **plain)
                drawn = cv2.imread(file, cv2.IMREAD_COLOR_RGB)
            both = drawn.shape[1] >= 1.9 * shown.shape[1]  # truth beside prediction
            half = drawn.shape[1] // 2
            row += [drawn[:, :half]] if both and not row else []
            row.append(drawn[:, half:] if both else drawn)
        rows.append([shown, *row])
    names = ['image', 'truth'][: len(rows[0]) - len(titles)]
    meta = dataset.metainfo if 'pred_sem_seg' in sample else {}
    classes = zip(meta.get('classes', ()), meta.get('palette') or (), strict=False)
    plot_images(rows, [*names, *titles.values()], path, legend=dict(classes))


def next_commands(folder: Path, results: StitchTable, runner: Runner) -> list[str]:
    """Return the commands of the next steps that the model in a folder supports."""
    front = _front(results)
    middle = (front or [results[0]])[len(front) // 2]
    budget = UNITS['flops'].budget(middle.flops)
    model, bundle = (folder / 'elastic.py', folder / 'elastic.pth'), folder / 'bundle'
    known = '--results', folder / 'stitches.json'
    export = [*model, '--stitch-id', 'pareto', *known]
    task = task_of(runner.model)
    in_graph = task.without_heads(runner.model) is None
    network = find_stitched_backbone(runner.model).anchors
    if not in_graph:
        export += ['--format', 'mm']
    elif len(precisions := precisions_of(network)) > 1:
        export += ['--precision', *precisions]
    left = in_graph and left_of(runner.cfg, runner.model)
    if runner.cfg.get('val_dataloader') and not left:
        export += ['--verify-on', 'val']
    commands = [
        tool_command('test.py', *model, '--budget', budget, *known),
        tool_command('export_stitch.py', *export, '--out', bundle),
    ]
    # Which the page can show.
    if in_graph and not left and task.name == 'segmentation':
        site = '--out', folder / 'site'
        commands.append(tool_command('web_demo.py', bundle, *site))
    return commands
