"""The whole method in minutes: train two anchors, stitch them, evaluate every stitch.

Runs the configs of ``configs/toy`` for a task on generated scenes, one after the other,
prints the table of all stitches and draws their Pareto front.
"""

import argparse
import logging
import time
import warnings
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.apis import find_stitched_backbone
from snnet_mm.engine import missing_headroom
from snnet_mm.utils import ToolParser, check, guard_checkpoints, run_command

CONFIGS = Path(__file__).parents[1] / 'configs' / 'toy'
# Names of the configs by task.
TASKS = dict(
    seg='setr-naive_{}_1xb16-300_toy-scenes-64x64',
    depth='dpt_{}_1xb16-300_toy-scenes-64x64',
    det='mask-rcnn_{}_1xb8-300_toy-scenes-64x64',
    cls='cls_{}_1xb16-600_toy-scenes-64x64',
)


@HOOKS.register_module()
class ProgressHook(Hook):
    """Prints the loss now and then, in place of mmengine's full log."""

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Print every 50 iterations."""
        done = runner.iter + 1
        if done % 50 == 0 or done == runner.max_iters:
            loss = outputs['loss'].item()
            print(f'  iteration {done}/{runner.max_iters}  loss {loss:.3f}', flush=True)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('--task', choices=TASKS, default='seg', help='what the models predict')
    what = 'output folder (default: work_dirs/demo, or work_dirs/demo_TASK)'
    add('--work-dir', type=Path, help=what)
    what = 'iterations of each training (default: the configs)'
    add('--iters', type=int, help=what)
    what = 'scenes to evaluate on (default: the configs)'
    add('--num-scenes', type=int, help=what)
    args = parser.parse_args()
    for name, value in (('iters', args.iters), ('num-scenes', args.num_scenes)):
        check(value is None or value > 0, f'--{name}', value, '1 or more')
    if args.work_dir is None:
        name = 'demo' if args.task == 'seg' else f'demo_{args.task}'
        args.work_dir = Path('work_dirs', name)
    return args


def load_config(model: str, args: argparse.Namespace) -> Config:
    """Load a toy config and set the options of the command line."""
    name = TASKS[args.task].format(model)
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    cfg.work_dir = str(args.work_dir / name)
    cfg.log_level = 'ERROR'
    cfg.custom_hooks = [*cfg.get('custom_hooks', []), dict(type='ProgressHook')]
    if args.iters is not None:
        cfg.train_cfg.max_iters = args.iters
        cfg.default_hooks.checkpoint.interval = args.iters
        cfg.param_scheduler = []
    if args.num_scenes is not None:
        for loader in (cfg.val_dataloader, cfg.test_dataloader):
            loader.dataset.num_scenes = args.num_scenes
    return cfg


def train_anchor(model: str, args: argparse.Namespace) -> str:
    """Train one anchor; return its checkpoint."""
    runner = Runner.from_cfg(load_config(model, args))
    runner.train()
    return str(Path(runner.work_dir) / f'iter_{runner.max_iters}.pth')


def start_from(config: object, checkpoints: dict[str, str]) -> None:
    """Replace the checkpoints that the parts of a model start from."""
    if isinstance(config, dict):
        if config.get('checkpoint') in checkpoints:
            config['checkpoint'] = checkpoints[config['checkpoint']]
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for part in config:
            start_from(part, checkpoints)


def train_stitched(fast: str, slow: str, args: argparse.Namespace) -> None:
    """Stitch two trained anchors, train them together and test every stitch."""
    cfg = load_config('snnetv2-fast-slow', args)
    start_from(cfg.model, {cfg.fast_checkpoint: fast, cfg.slow_checkpoint: slow})
    cfg.test_cfg.update(stitches='all', out_dir=str(args.work_dir))
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    runner = Runner.from_cfg(cfg)
    if warning := missing_headroom(find_stitched_backbone(runner.model)):
        print(f'  {warning}')
    runner.train()
    print('Evaluating every stitch')
    for logger in (runner.logger, *runner.logger.handlers):
        logger.setLevel(logging.INFO)
    runner.test()


@guard_checkpoints()
def main() -> None:
    args = parse_args()
    # Remarks of the mm packages on their own defaults.
    warnings.filterwarnings('ignore', module='mm')
    start = time.time()
    print('Training the fast anchor')
    fast = train_anchor('vit-fast', args)
    print('Training the slow anchor')
    slow = train_anchor('vit-slow', args)
    print('Stitching them by least squares and training all stitches together')
    train_stitched(fast, slow, args)
    print(f'Done in {time.time() - start:.0f} s')


if __name__ == '__main__':
    run_command(main)
