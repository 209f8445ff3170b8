"""The whole method in minutes: train two anchors, stitch them, evaluate every stitch.

Runs the configs of ``configs/toy`` for a task on generated scenes, one after the other,
trains the anchors alone for as many iterations in all, and compares them in a table and
in pictures.
"""

import argparse
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from rich.table import Table

from snnet_mm.apis import build_runner, find_stitched_backbone, set_stitch
from snnet_mm.engine import missing_headroom
from snnet_mm.evaluation import (
    Baseline,
    draw_sample,
    evaluate_whole_model,
    plot_images,
    plot_pareto,
    wide_console,
)
from snnet_mm.stitching import UNITS, StitchResults
from snnet_mm.utils import (
    ToolParser,
    check,
    dicts_in,
    guard_checkpoints,
    run_command,
    set_length,
)

CONFIGS = Path(__file__).parents[1] / 'configs' / 'toy'
# Names of the configs by task.
TASKS = dict(
    seg='setr-naive_{}_1xb16-300_toy-scenes-64x64',
    depth='dpt_{}_1xb16-300_toy-scenes-64x64',
    det='mask-rcnn_{}_1xb8-300_toy-scenes-64x64',
    cls='cls_{}_1xb16-600_toy-scenes-64x64',
)
# Iterations of each anchor, so that all five trainings take about two minutes on two
# cores. Each is then trained on, alone, for a third as many, and the stitched model for
# as many as both of them.
ITERATIONS = dict(seg=255, depth=105, det=75, cls=300)
ANCHORS = 'fast', 'slow'
NUM_PICTURES = 4
SURPRISE = """Stitch {} beats the slow anchor: it shares blocks with all other stitches,
which regularises them, and its score is the best of many on few scenes."""
LESSON = """The anchors alone are ahead after so short a training: all iterations were
theirs, where {} stitches share as many. More narrow it: docs/how_it_works.md."""


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('--task', choices=TASKS, default='seg', help='what the models predict')
    what = 'output folder (default: work_dirs/demo, or work_dirs/demo_TASK)'
    add('--work-dir', type=Path, help=what)
    what = f'iterations of each anchor, before a third more of it alone ({ITERATIONS})'
    add('--iters', type=int, help=what)
    what = 'scenes to evaluate on (default: the configs)'
    add('--num-scenes', type=int, help=what)
    args = parser.parse_args()
    for name, value in (('iters', args.iters), ('num-scenes', args.num_scenes)):
        check(value is None or value > 0, f'--{name}', value, '1 or more')
    args.iters = args.iters or ITERATIONS[args.task]
    if args.work_dir is None:
        name = 'demo' if args.task == 'seg' else f'demo_{args.task}'
        args.work_dir = Path('work_dirs', name)
    return args


def load_config(model: str, args: argparse.Namespace, share: float = 1) -> Config:
    """Load a toy config and set its length, a share of the anchors' iterations."""
    name = TASKS[args.task].format(model)
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    cfg.work_dir = str(args.work_dir / name)
    set_length(cfg, max(round(args.iters * share), 1))
    if args.num_scenes is not None:
        for loader in (cfg.val_dataloader, cfg.test_dataloader):
            loader.dataset.num_scenes = args.num_scenes
    return cfg


def build(cfg: Config) -> Runner:
    """Build a runner that prints its progress alone."""
    with redirect_stdout(StringIO()):
        return build_runner(cfg, 'train')


def train_anchor(anchor: str, args: argparse.Namespace) -> str:
    """Train one anchor; return its checkpoint."""
    print(f'Training the {anchor} anchor', flush=True)
    runner = build(load_config(f'vit-{anchor}', args))
    runner.train()
    return str(Path(runner.work_dir) / f'iter_{runner.max_iters}.pth')


def train_alone(anchor: str, start: str, args: argparse.Namespace) -> StitchResults:
    """Train an anchor on, without the other, and test it."""
    print(f'Training the {anchor} anchor on, alone, for a fair comparison', flush=True)
    cfg = load_config(f'vit-{anchor}', args, share=1 / 3)
    cfg.load_from, cfg.work_dir = start, cfg.work_dir + '_alone'
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    runner = build(cfg)
    runner.train()
    evaluate_whole_model(runner)
    file = Path(runner.work_dir, 'results.json')
    return StitchResults.read(file) if file.exists() else None


def train_stitched(starts: list[str], args: argparse.Namespace) -> Runner:
    """Stitch two trained anchors, train them together and test every stitch."""
    print('Stitching them by least squares and training all stitches', flush=True)
    cfg = load_config('snnetv2-fast-slow', args, share=2 / 3)
    fast, slow = starts
    checkpoints = {cfg.fast_checkpoint: fast, cfg.slow_checkpoint: slow}
    for part in dicts_in(cfg.model):
        if part.get('checkpoint') in checkpoints:
            part['checkpoint'] = checkpoints[part['checkpoint']]
    cfg.test_cfg.update(stitches='all', out_dir=str(args.work_dir))
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    runner = build(cfg)
    if warning := missing_headroom(find_stitched_backbone(runner.model)):
        print(f'  {warning}')
    runner.train()
    print('Evaluating every stitch in one pass over the data', flush=True)
    runner.test()
    return runner


def compare(results: StitchResults, alone: dict[str, StitchResults]) -> Table:
    """Make the table of the anchors alone and of the stitches on the front."""
    metric = results.metric
    title = 'As many iterations in all: anchors alone, and stitches of one file'
    table = Table(title=title)
    for name in ('model', 'GFLOPs', 'params (M)', metric):
        table.add_column(name, justify='left' if name == 'model' else 'right')
    best = [r for r in results.stitches if r.id in results.front()]
    rows = {f'stitch {r.id}: {r.route}': r for r in sorted(best, key=lambda r: r.flops)}
    rows = {f'{a} anchor alone': r.stitches[0] for a, r in alone.items() if r} | rows
    for name, r in rows.items():
        costs = (UNITS[key].cell(getattr(r, key)) for key in ('flops', 'params'))
        table.add_row(name, *costs, f'{r.metrics[metric]:.4g}')
    return table


@torch.no_grad()
def draw(runner: Runner, ids: list[int], path: Path) -> None:
    """Draw scenes, truth and the predictions of some stitches."""
    dataset, rows = runner.test_dataloader.dataset, []
    for i in range(min(NUM_PICTURES, len(dataset))):
        item, row = dataset[i], []
        image = item['inputs'].numpy()[::-1].transpose(1, 2, 0).copy()
        for stitch in ids:
            set_stitch(runner.model, stitch)
            samples = [item['data_samples'].clone()]
            batch = dict(inputs=[item['inputs']], data_samples=samples)
            (sample,) = runner.model.test_step(batch)
            with TemporaryDirectory() as folder:
                file = str(Path(folder, 'a.png'))
                more = dict(out_file=file)
                if 'pred_sem_seg' in sample:  # names would hide small scenes
                    more['with_labels'] = False
                draw_sample(runner.visualizer, 'a', image, sample, **more)
                drawn = cv2.imread(file, cv2.IMREAD_COLOR_RGB)
            height, width = drawn.shape[:2]
            both = width >= 2 * height  # truth and prediction
            row += [drawn[:, : width // 2]] if both and not row else []
            row.append(drawn[:, width // 2 :] if both else drawn)
        rows.append([image, *row])
    names = ['scene', 'truth'][: len(rows[0]) - len(ids)]
    meta = dataset.metainfo if 'pred_sem_seg' in sample else {}
    classes = zip(meta.get('classes', ()), meta.get('palette', ()), strict=True)
    titles = [*names, *(f'stitch {i}' for i in ids)]
    plot_images(rows, titles, path, legend=dict(classes))


def conclude(runner: Runner, alone: dict, args: argparse.Namespace) -> None:
    """Print the comparison and what it means, and draw the pictures."""
    results = StitchResults.read(args.work_dir / 'stitches.json')
    print()
    wide_console().print(compare(results, alone))
    kept = sum(p.numel() for p in runner.model.parameters()) / 1e6
    apart = sum(results.column('params').values()) / 1e6
    front, number = results.front(), len(results.stitches)
    print(
        f'One file with {kept:.2f} M parameters serves {number} stitches and '
        f'{len(front)} budgets; {number} models would have {apart:.2f} M.'
    )
    baselines = [
        Baseline(f'{a} anchor alone', of.stitches[0].flops, of.score(of.stitches[0]))
        for a, of in alone.items()
        if of
    ]
    sign, scores = 1 if results.higher_is_better else -1, results.scores()
    best = max(scores, key=lambda i: sign * scores[i])
    slow = [scores[1], *(r.score(r.stitches[0]) for r in [alone['slow']] if r)]
    if best != 1 and sign * scores[best] > max(sign * score for score in slow):
        print(SURPRISE.format(best))
    if alone['fast'] and sign * (scores[0] - baselines[0].score) < 0:
        print(LESSON.format(number))
    plot_pareto(results, args.work_dir / 'pareto.png', baselines=baselines)
    ids = [front[0], front[len(front) // 2], front[-1], 1]
    ids = list(dict.fromkeys(ids))[:3]
    draw(runner, ids, args.work_dir / 'predictions.png')
    print(f'Pictures: {args.work_dir}/pareto.png and predictions.png')
    config = TASKS[args.task].format('snnetv2-fast-slow')
    model = Path(runner.work_dir, f'iter_{runner.max_iters}.pth')
    limit = 1.01 * results.column('flops')[front[len(front) // 2]]
    print(f"""Next, the best stitch within a budget:
  .venv/bin/python tools/test.py configs/toy/{config}.py {model} \\
      --budget {limit / 1e9:.3g}G --results {args.work_dir}/stitches.json""")


@guard_checkpoints()
def main() -> None:
    args, start = parse_args(), time.time()
    starts = [train_anchor(anchor, args) for anchor in ANCHORS]
    runner = train_stitched(starts, args)
    pairs = zip(ANCHORS, starts, strict=True)
    conclude(runner, {a: train_alone(a, ckpt, args) for a, ckpt in pairs}, args)
    print(f'Done in {time.time() - start:.0f} s')


if __name__ == '__main__':
    run_command(main)
