"""Test any stitches of a model: ``tools/test.py CONFIG CKPT --stitch-id N[,M...]``."""

import argparse
import os
import os.path as osp

from mmengine.config import Config, DictAction
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from snnet_mm.datasets import check_data_folders
from snnet_mm.utils import guard_checkpoints, prepare_cpu_distributed


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Test (and eval) a model')
    parser.add_argument('config', help='test config file path')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--stitch-id',
        help="stitches to test: 'all', 'anchors', or ids such as 0,5,12; by default "
        'what the config says',
    )
    parser.add_argument(
        '--work-dir', help='the dir to save logs and the table of stitches'
    )
    parser.add_argument(
        '--out', help='the dir to save output predictions for offline evaluation'
    )
    parser.add_argument('--show', action='store_true', help='show prediction results')
    parser.add_argument('--show-dir', help='dir where painted images will be saved')
    parser.add_argument(
        '--wait-time', type=float, default=2, help='the interval of show (s)'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='override settings of the config, in the form of key=value pairs',
    )
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='job launcher',
    )
    parser.add_argument('--tta', action='store_true', help='test time augmentation')
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='load checkpoints with whatever is in them, code that runs included; by '
        'default they are read as weights and plain data only',
    )
    # torchrun passes it with an underscore or a hyphen, depending on its version.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0)
    args = parser.parse_args()
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return args


def set_visualization(cfg: Config, args: argparse.Namespace) -> None:
    """Turn on the config's visualization hook."""
    hook = cfg.default_hooks.get('visualization')
    if hook is None:
        raise ValueError(
            '--show and --show-dir need a visualization hook (config key: '
            'default_hooks.visualization)'
        )
    hook.draw = True
    if args.show:
        hook.show, hook.wait_time = True, args.wait_time
    if args.show_dir:
        cfg.visualizer.save_dir = args.show_dir


def main() -> None:
    args = parse_args()
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        name = osp.splitext(osp.basename(args.config))[0]
        cfg.work_dir = osp.join('work_dirs', name)
    cfg.load_from = args.checkpoint
    if args.stitch_id is not None:
        size = (cfg.get('test_cfg') or {}).get('input_size')
        cfg.test_cfg = dict(
            type='StitchTestLoop', stitches=args.stitch_id, input_size=size
        )
    if args.show or args.show_dir:
        set_visualization(cfg, args)
    if args.tta:
        cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
        cfg.tta_model.module = cfg.model
        cfg.model = cfg.tta_model
    if args.out is not None:
        cfg.test_evaluator.output_dir = args.out
    check_data_folders(cfg.get('test_dataloader'), 'test_dataloader')
    guard_checkpoints(trust=args.trust_checkpoint)
    prepare_cpu_distributed(cfg)
    build = RUNNERS.build if 'runner_type' in cfg else Runner.from_cfg
    build(cfg).test()


if __name__ == '__main__':
    main()
