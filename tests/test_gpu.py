"""What only a GPU shows: training, costs, export and fits of small models on it."""

import numpy as np
import pytest
import torch
from small import small, write_trained

import snnet_mm as sn
from snnet_mm.training import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device'),
]


@pytest.mark.parametrize('task', ['seg', 'depth', 'det', 'cls'])
def test_make_elastic_after_training_in_half_precision(task, tmp_path):
    config, checkpoint = write_trained(task, tmp_path)
    trained = run.train(config, tmp_path / 'work', iters=2, amp=True)
    assert trained.iter == 2
    assert next(trained.model.parameters()).is_cuda
    table = sn.make_elastic(
        config, checkpoint, tmp_path / 'elastic', num_images=4, force=True
    )
    assert all(row.latency > 0 for row in table.rows)


def test_stitched_pair_trains_is_tested_and_exported(tmp_path):
    cfg = small('tiny')
    cfg.train_cfg.max_iters = 2
    runner = run.train(cfg, tmp_path, amp=True)
    checkpoint = runner.message_hub.runtime_info['last_ckpt']
    tested = run.test(cfg, checkpoint, tmp_path, stitches='all')
    table = run.results_of(tested)
    assert len(table) == len(tested.model.backbone.space)
    model = sn.load(cfg, checkpoint)
    assert next(model.parameters()).is_cuda
    times = sn.measure(model, (32, 32), latency=True).column('latency')
    assert min(times.values()) > 0
    sn.export(model, tmp_path / 'bundle', [0, 1])
    mask = sn.Runtime(tmp_path / 'bundle')(np.zeros((32, 32, 3), np.uint8))
    assert mask.shape == (32, 32)
