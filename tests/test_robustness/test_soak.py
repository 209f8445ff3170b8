"""Memory and open files stay flat, whatever is switched and evaluated."""

import gc
import os
from itertools import combinations

import numpy as np
import pytest
from mmengine.hooks import Hook
from mmengine.runner import Runner
from tiny import tiny_config

PAGE = os.sysconf('SC_PAGE_SIZE')


class Gauge(Hook):
    """Reads the resident memory in MB, and counts open files and Python's objects."""

    priority = 'LOWEST'

    def __init__(self, every):
        self.every, self.stitches = every, set()
        self.memory, self.files, self.objects = [], [], []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.stitches.add(runner.model.backbone.active_stitch.id)
        if (runner.iter + 1) % self.every == 0:
            gc.collect()
            with open('/proc/self/statm') as file:
                self.memory.append(int(file.read().split()[1]) * PAGE / 2**20)
            self.files.append(len(os.listdir('/proc/self/fd')))
            self.objects.append(len(gc.get_objects()))


def rise(values, every):
    """Megabytes in 1,000 iterations: the median slope between any two readings.

    So a moment that holds more than others, or an allocator's step, is no leak.
    """
    pairs = combinations(enumerate(values), 2)
    return 1000 / every * np.median([(b - a) / (j - i) for (i, a), (j, b) in pairs])


@pytest.mark.slow
def test_a_long_training_is_flat(tmp_path):
    iters, every, evaluate = 2000, 20, 200
    cfg = tiny_config()
    cfg.work_dir = str(tmp_path)
    cfg.experiment_name = cfg.visualizer.name = tmp_path.name
    cfg.default_hooks.stitch_sampling.sampler = dict(type='UniformSampler')
    cfg.train_dataloader.dataset.num_scenes = 16
    cfg.train_cfg.update(max_iters=iters, val_interval=evaluate)
    cfg.val_cfg.stitches = 'all'
    cfg.default_hooks.checkpoint.interval = evaluate
    gauge = Gauge(every)
    runner = Runner.from_cfg(cfg)
    runner.register_hook(gauge)
    runner.train()
    assert gauge.stitches == {0, 1, 2, 4}
    # The first quarter fills caches.
    start = len(gauge.memory) // 4
    # The allocator rises by steps; what a leak keeps of each iteration, it is not.
    assert rise(gauge.memory[start:], every) < 15
    assert gauge.objects[-2] - gauge.objects[start] < iters / 4
    assert len(set(gauge.files[start:])) == 1
