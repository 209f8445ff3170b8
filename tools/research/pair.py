"""Compare a stitched pair with its two anchors alone, both trained for equal compute.

The anchors are DINOv2-S (slow) and its first four blocks (fast), each fine-tuned alone
on CamVid. From there on, the pair is trained stitched; and, as the control, each anchor
alone for as many iterations as cost the same in all, at the same rates. All are tested
on validation and test images. Finished steps are skipped, an interrupted training is
resumed. The tables are written for all seeds that are given.
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
    from compare_fronts import Figure, Run

CONFIGS = ROOT / 'configs' / 'dinov2'
SLOW = CONFIGS / 'setr-naive_dinov2-s_1xb4-600_camvid-238x168.py'
FAST = CONFIGS / 'setr-naive_dinov2-s4_1xb4-600_camvid-238x168.py'
PAIR = CONFIGS / 'setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py'
SPLITS = 'val', 'test'
RESAMPLES = 1000
SUMMARY = 'area'


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


def iterations_alone(stitched: int) -> int:
    """Return the iterations of each anchor that cost as much as those of the pair.

    A training step costs about three forward passes, of whichever model.
    """
    from mmengine.registry import MODELS, init_default_scope

    from snnet_mm.costs import cost_table, whole_model_cost
    from snnet_mm.utils import load_config

    fast, slow, pair = map(load_config, (FAST, SLOW, PAIR))
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
        iters, stitched = self.args.iters, self.args.stitched
        weights = f'model.backbone.init_cfg.checkpoint={self.args.weights}'
        slow = self._train(SLOW, 'slow', iters, weights)
        fast = self._train(FAST, 'fast', iters, weights)
        pair = self._train(
            PAIR,
            'pair',
            stitched,
            f'model.backbone.anchors.0.init_cfg.checkpoint={fast}',
            f'model.backbone.anchors.1.init_cfg.checkpoint={slow}',
            f'model.decode_head.init_cfg.checkpoint={slow}',
        )
        more = iterations_alone(stitched)
        trained = {'pair': (PAIR, pair)}
        for config, name, start in (SLOW, 'slow', slow), (FAST, 'fast', fast):
            loaded = f'model.init_cfg.checkpoint={start}'
            settings = 'model.backbone.init_cfg=None', 'model.init_cfg.type=Pretrained'
            file = self._train(config, f'{name}-more', more, *settings, loaded)
            trained[name] = config, file
        return {
            split: {k: self._test(*of, k, split) for k, of in trained.items()}
            for split in SPLITS
        }

    def _train(self, config: Path, name: str, iters: int, *settings: str) -> Path:
        file = self.folder / name / f'iter_{iters}.pth'
        if not file.exists():
            options = ['--iters', str(iters), '--resume', *['--amp'] * self.args.amp]
            seed = f'randomness.seed={self.seed}'
            once = f'train_cfg.val_begin={iters + 1}'  # validated when it is tested
            self._run('train.py', config, name, options, [seed, once, *settings])
        return file

    def _test(self, config: Path, checkpoint: Path, name: str, split: str) -> Path:
        folder = f'{name}-{split}'
        wanted = 'stitches.json' if config == PAIR else 'results.json'
        found = sorted(self.folder.glob(f'{folder}/*/{wanted}'))
        if not found:
            data = 'test_dataloader.dataset.data_prefix'
            settings = f'img_path=images/{split}', f'seg_map_path=annotations/{split}'
            options = [str(checkpoint), *['--stitch-id', 'all'] * (config == PAIR)]
            self._run(
                'test.py', config, folder, options, [f'{data}.{s}' for s in settings]
            )
            found = sorted(self.folder.glob(f'{folder}/*/{wanted}'))
        return found[-1]

    def _run(
        self,
        tool: str,
        config: Path,
        name: str,
        options: Sequence[str],
        settings: Sequence[str],
    ) -> None:
        place = '--work-dir', str(self.folder / name)
        script = sys.executable, str(ROOT / 'tools' / tool), str(config)
        subprocess.run(
            [*script, *options, *place, '--cfg-options', *settings], check=True
        )


def read(file: Path) -> Run:
    from compare_fronts import Run

    return Run.read(
        str(file), argparse.Namespace(metric='mIoU', cost='flops', costs=None)
    )


def compare(results: Sequence[dict[str, Path]]) -> list[dict[str, str | Figure]]:
    """Return a row for each stitch of the pair, and one for the area under the front.

    ``results`` are those of the seeds, by model. Scores are means of the seeds;
    intervals (95 %) are those of a paired bootstrap over images.
    """
    from compare_fronts import Figure, FrontComparison, Run

    of_seeds = [{k: read(file) for k, file in of.items()} for of in results]
    models = dict(
        alone=[Run.joined([runs['fast'], runs['slow']]) for runs in of_seeds],
        pair=[runs['pair'] for runs in of_seeds],
    )
    fronts = FrontComparison(models, RESAMPLES)
    weights, rows = fronts.weights, []
    scores = {
        name: np.stack([runs[name].images.scores(weights) for runs in of_seeds])
        for name in ('fast', 'slow', 'pair')
    }
    fast, slow = (scores[name][..., 0] for name in ('fast', 'slow'))
    (begin,), (end,) = (of_seeds[0][name].costs for name in ('fast', 'slow'))
    table = StitchTable.read(results[0]['pair'])
    routes = {row.id: row.route for row in table.rows}
    pair = of_seeds[0]['pair']
    for i in np.argsort(pair.costs):
        own, cost = scores['pair'][..., i], pair.costs[i]
        best = np.stack(
            [run.best_within(pair.costs[i : i + 1], weights) for run in models['alone']]
        )[..., 0]
        line = fast + (slow - fast) * np.clip((cost - begin) / (end - begin), 0, 1)
        rows.append(
            dict(
                stitch=f'{pair.images.ids[i]}: {routes[pair.images.ids[i]]}',
                gflops=f'{cost:.2f}',
                pair=Figure.of(own),
                alone=Figure.of(best),
                difference=Figure.of(own - best),
                line=Figure.of(own - line),
            )
        )
    area = 'area under front'
    figures = fronts.figures()
    rows.append(
        dict(
            stitch=SUMMARY,
            gflops=f'{fronts.low:.2f} - {fronts.high:.2f}',
            pair=figures['pair'][area],
            alone=figures['alone'][area],
            difference=fronts.differences('alone')['pair'][area],
        )
    )
    return rows


def markdown(rows: Sequence[dict[str, str | Figure]]) -> str:
    lines = [
        '| GFLOPs | stitch of the pair | pair | anchors alone: best within this cost '
        '| pair minus alone | pair minus the line between both |',
        '|---|---|---|---|---|---|',
    ]
    for row in rows:
        values = (
            ', '.join(f'{v:.2f}' for v in row[k].seeds) for k in ('pair', 'alone')
        )
        differences = (
            f'{f.value:+.2f} [{f.low:.2f}, {f.high:.2f}]' if f else ''
            for f in (row['difference'], row.get('line'))
        )
        cells = row['gflops'], row['stitch'], *values, *differences
        lines.append(f'| {" | ".join(cells)} |')
    return '\n'.join(lines)


def main() -> None:
    args = parse_args()
    args.work_dir = args.work_dir.resolve()
    results = [
        Models(args.work_dir / f'seed{seed}', seed, args).results()
        for seed in args.seeds
    ]
    for split in SPLITS:
        rows = compare([of_seed[split] for of_seed in results])
        print(f'\n{split}, mIoU of seeds {args.seeds}\n{markdown(rows)}')
        file = args.work_dir / f'pair_{split}.json'
        plain = [
            {k: v if isinstance(v, str) else asdict(v) for k, v in row.items()}
            for row in rows
        ]
        write_json(file, dict(seeds=args.seeds, rows=plain))
        print(f'Wrote {file}')


if __name__ == '__main__':
    run_command(main)
