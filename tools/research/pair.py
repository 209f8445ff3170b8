"""Compare a stitched pair with its two anchors alone, both trained for equal compute.

The anchors are DINOv2-S (slow) and its first four blocks (fast), each fine-tuned alone
on CamVid. From there on, the pair is trained stitched; and each anchor alone, as the
control, at the same rates and for as many iterations as cost the same in all. Both are
tested on validation and test images. Finished steps are skipped, an interrupted
training is resumed. Tables are means over the seeds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnet_mm.stitching import StitchTable
from snnet_mm.utils import ToolParser, run_command, write_json

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / 'tools' / 'analysis_tools'))

if TYPE_CHECKING:
    from compare_fronts import Figure
    from mmengine.config import Config

CONFIGS = ROOT / 'configs' / 'dinov2'
SLOW = CONFIGS / 'setr-naive_dinov2-s_1xb4-600_camvid-238x168.py'
FAST = CONFIGS / 'setr-naive_dinov2-s4_1xb4-600_camvid-238x168.py'
PAIR = CONFIGS / 'setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py'
SPLITS = 'val', 'test'
RESAMPLES = 1000
HEAD = (
    'GFLOPs', 'stitch', 'pair', 'anchors alone: best within this cost',
    'pair minus alone', 'pair minus the line between both alone',
)  # fmt: skip


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('--seeds', type=int, nargs='+', default=[0, 1], help='default: 0 1')
    words = 'iterations of each anchor before the comparison (default: %(default)s)'
    add('--iters', type=int, default=600, help=words)
    words = 'iterations of the stitched pair (default: %(default)s)'
    add('--stitched', type=int, default=1200, help=words)
    add('--amp', action='store_true', help='mixed precision (bfloat16 on CPUs)')
    words = 'weights of DINOv2-S (default: timm downloads them)'
    add('--weights', default='timm://vit_small_patch14_dinov2.lvd142m', help=words)
    words = 'output folder (default: %(default)s)'
    add('--work-dir', type=Path, default='work_dirs/pair', help=words)
    return parser.parse_args()


def iterations_alone(fast: Config, slow: Config, pair: Config, stitched: int) -> int:
    """Return the iterations of each anchor that cost as much as those of the pair.

    A training step costs three forward passes of the model, whichever it is.
    """
    from mmengine.registry import MODELS, init_default_scope

    from snnet_mm.costs import cost_table, whole_model_cost

    init_default_scope(pair.default_scope)
    size = pair.model.data_preprocessor.size
    both = sum(
        whole_model_cost(MODELS.build(cfg.model), size)[0].flops for cfg in (fast, slow)
    )
    flops = cost_table(MODELS.build(pair.model), size).column('flops')
    drawn = [flops[i] for i in pair.default_hooks.stitch_sampling.sampler.ids]
    return round(stitched * np.mean(drawn) / both)


@dataclass(frozen=True)
class Models:
    """The trainings and tests of one seed, in a folder."""

    folder: Path
    seed: int
    args: argparse.Namespace

    def results(self) -> dict[str, dict[str, Path]]:
        """Train and test what is not done; return results by split and model."""
        from snnet_mm.utils import load_config

        iters, stitched = self.args.iters, self.args.stitched
        weights = f'model.backbone.init_cfg.checkpoint={self.args.weights}'
        slow = self._train(SLOW, 'slow', iters, weights)
        fast = self._train(FAST, 'fast', iters, weights)
        given = {'backbone.anchors.0': fast, 'backbone.anchors.1': slow}
        given = [
            f'model.{part}.init_cfg.checkpoint={file}'
            for part, file in (given | dict(decode_head=slow)).items()
        ]
        trained = dict(pair=(PAIR, self._train(PAIR, 'pair', stitched, *given)))
        configs = map(load_config, (FAST, SLOW, PAIR))
        more = iterations_alone(*configs, stitched)
        for name, config, start in ('slow', SLOW, slow), ('fast', FAST, fast):
            given = 'model.backbone.init_cfg=None', 'model.init_cfg.type=Pretrained'
            given = *given, f'model.init_cfg.checkpoint={start}'
            file = self._train(config, f'{name}-more', more, *given)
            trained[name] = config, file
        return {
            split: {
                k: self._test(*of, f'{k}-{split}', split) for k, of in trained.items()
            }
            for split in SPLITS
        }

    def _train(self, config: Path, name: str, iters: int, *settings: str) -> Path:
        file = self.folder / name / f'iter_{iters}.pth'
        if not file.exists():
            options = ['--iters', str(iters), '--resume', *['--amp'] * self.args.amp]
            own = f'randomness.seed={self.seed}', f'train_cfg.val_begin={iters + 1}'
            self._run('train.py', config, name, options, [*own, *settings])
        return file

    def _test(self, config: Path, checkpoint: Path, name: str, split: str) -> Path:
        stitched = config == PAIR
        # The tool links it there when all is tested.
        file = self.folder / name / ('stitches.json' if stitched else 'results.json')
        if not file.exists():
            data = 'test_dataloader.dataset.data_prefix'
            settings = [
                f'{data}.img_path=images/{split}',
                f'{data}.seg_map_path=annotations/{split}',
            ]
            options = [str(checkpoint), *['--stitch-id', 'all'] * stitched]
            self._run('test.py', config, name, options, settings)
        return file

    def _run(
        self,
        tool: str,
        config: Path,
        name: str,
        options: Sequence[str],
        settings: Sequence[str],
    ) -> None:
        command = [sys.executable, str(ROOT / 'tools' / tool), str(config), *options]
        command += ['--work-dir', str(self.folder / name), '--cfg-options', *settings]
        subprocess.run(command, check=True)


def compare(results: Sequence[dict[str, Path]]) -> list[dict[str, str | Figure]]:
    """Return a row for each stitch of the pair by cost, then one of the whole front.

    ``results`` are those of each seed, by model. Figures are means of the seeds, with
    95 % intervals of a bootstrap over images, paired for differences.
    """
    from compare_fronts import Figure, FrontComparison, Run

    how = argparse.Namespace(metric='mIoU', cost='flops', costs=None)
    pairs, fasts, slows = (
        [Run.read(str(of_seed[name]), how) for of_seed in results]
        for name in ('pair', 'fast', 'slow')
    )
    alone = [Run.joined(runs) for runs in zip(fasts, slows, strict=True)]
    fronts = FrontComparison(dict(alone=alone, pair=pairs), RESAMPLES)
    fast, slow, pair = (
        np.stack([run.images.scores(fronts.weights) for run in runs])
        for runs in (fasts, slows, pairs)
    )
    first, costs = pairs[0], pairs[0].costs
    begin, end = fasts[0].costs, slows[0].costs
    line = fast + (slow - fast) * np.clip((costs - begin) / (end - begin), 0, 1)
    best = np.stack([run.best_within(costs, fronts.weights) for run in alone])
    routes = {row.id: row.route for row in StitchTable.read(results[0]['pair']).rows}
    rows = [
        dict(
            cost=f'{costs[i]:.2f}',
            stitch=f'{first.images.ids[i]}: `{routes[first.images.ids[i]]}`',
            pair=Figure.of(pair[..., i]),
            alone=Figure.of(best[..., i]),
            difference=Figure.of((pair - best)[..., i]),
            line=Figure.of((pair - line)[..., i]),
        )
        for i in np.argsort(costs)
    ]
    key, figures = 'area under front', fronts.figures()
    area = dict(cost=f'{fronts.low:.2f} - {fronts.high:.2f}', stitch=key)
    area |= {name: figures[name][key] for name in ('pair', 'alone')}
    return [*rows, area | dict(difference=fronts.differences('alone')['pair'][key])]


def markdown(rows: Sequence[dict[str, str | Figure]]) -> str:
    lines = [HEAD, ['---'] * len(HEAD)]
    for row in rows:
        of_seeds = [
            ', '.join(f'{value:.2f}' for value in row[name].seeds)
            for name in ('pair', 'alone')
        ]
        differences = [
            f'{row[name].value:+.2f} [{row[name].low:.2f}, {row[name].high:.2f}]'
            if name in row
            else ''
            for name in ('difference', 'line')
        ]
        lines.append([row['cost'], row['stitch'], *of_seeds, *differences])
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def plain(row: dict[str, str | Figure]) -> dict:
    return {k: v if isinstance(v, str) else asdict(v) for k, v in row.items()}


def main() -> None:
    args = parse_args()
    folders = [args.work_dir.resolve() / f'seed{seed}' for seed in args.seeds]
    results = [
        Models(folder, seed, args).results()
        for folder, seed in zip(folders, args.seeds, strict=True)
    ]
    for split in SPLITS:
        rows = compare([of_seed[split] for of_seed in results])
        file = args.work_dir / f'pair_{split}.json'
        write_json(file, dict(seeds=args.seeds, rows=[plain(row) for row in rows]))
        print(f'\n{split}: mIoU, seeds {args.seeds}\n{markdown(rows)}\nWrote {file}')


if __name__ == '__main__':
    run_command(main)
