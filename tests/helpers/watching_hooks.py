from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.models import find_stitched_backbone


class Recorder(Hook):
    """Keeps what each iteration trained."""

    priority = 'LOWEST'

    def __init__(self):
        self.stitches, self.logged, self.start = [], [], None

    def before_train(self, runner):
        self.start = {k: v.clone() for k, v in runner.model.state_dict().items()}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        backbone = find_stitched_backbone(runner.model)
        self.stitches.append(backbone.active_stitch.id)
        scalar = runner.message_hub.get_scalar('train/stitch_gflops')
        self.logged.append(scalar.current())


def train(cfg, **changes):
    recorder = Recorder()
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    runner = Runner.from_cfg(cfg)
    runner.register_hook(recorder)
    runner.train()
    return runner, recorder


class Losses(Hook):
    """Keeps every loss, and what the visualizer was told."""

    def __init__(self):
        self.losses, self.told = [], []

    def before_train(self, runner):
        add_scalar = runner.visualizer.add_scalar

        def spy(name, value, step=0, **kwargs):
            if name.startswith('loss_by_gflops/'):
                self.told.append((name, value, step))
            return add_scalar(name, value, step=step, **kwargs)

        runner.visualizer.add_scalar = spy

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.losses.append(float(outputs['loss']))
