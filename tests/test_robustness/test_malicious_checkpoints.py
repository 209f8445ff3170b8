"""What is in a checkpoint runs only if the user says so."""

from pathlib import Path

import pytest
import torch
from malicious import Malicious

from snnet_mm.utils import load_weights_only


def test_tools_run_only_code_of_trusted_checkpoints(
    run_cfg, trained, run_here, tmp_path
):
    trace, file = tmp_path / 'it_ran', tmp_path / 'iter_2.pth'
    checkpoint = load_weights_only(trained)
    checkpoint['extra'] = Malicious(Path.touch, trace)
    torch.save(checkpoint, file)
    run_cfg.train_cfg.max_iters = 3
    run_cfg.dump(config := tmp_path / 'config.py')
    resume = 'train.py', config, '--resume', '--work-dir', tmp_path
    for args in (resume, ('test.py', config, file, '--work-dir', tmp_path)):
        with pytest.raises(ValueError, match=f'{file}.*--trust-checkpoint'):
            run_here(*args)
    assert not trace.exists()
    run_here(*resume, '--trust-checkpoint')
    assert trace.exists()
    assert (tmp_path / 'iter_3.pth').exists()
