import copy
from types import SimpleNamespace

from mmengine.runner import Runner


def ready(cfg):
    """A runner as before its first iteration, and its warnings."""
    runner, warned = Runner.from_cfg(copy.deepcopy(cfg)), []
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    if runner.param_schedulers:
        schedulers = runner.build_param_scheduler(runner.param_schedulers)
        runner.param_schedulers = schedulers
    runner.logger = SimpleNamespace(warning=warned.append, info=lambda text: None)
    return runner, warned
