from pathlib import Path

from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.models import find_stitched_backbone


class Recorder(Hook):
    """Records what each iteration trained."""

    priority = 'LOWEST'

    def __init__(self):
        self.stitches, self.sizes, self.logged, self.start = [], [], [], None

    def before_train(self, runner):
        self.start = {k: v.clone() for k, v in runner.model.state_dict().items()}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        backbone = find_stitched_backbone(runner.model)
        self.stitches.append(backbone.active_stitch.id)
        self.sizes.append(backbone.input_size)
        scalar = runner.message_hub.get_scalar('train/stitch_gflops')
        self.logged.append(scalar.current())


def in_folder(cfg, name, **changes):
    """Return a config with its own folder, and therefore its own history."""
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    cfg.experiment_name = cfg.visualizer.name = f'{Path(cfg.work_dir).name}_{name}'
    cfg.work_dir = str(Path(cfg.work_dir) / name)
    return cfg


def train(cfg, *hooks, handler=None, **changes):
    """Train with further hooks and, optionally, a log handler."""
    recorder = Recorder()
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    runner = Runner.from_cfg(cfg)
    if handler is not None:
        runner.logger.addHandler(handler)
    for hook in (recorder, *hooks):
        runner.register_hook(hook)
    runner.train()
    return runner, recorder
