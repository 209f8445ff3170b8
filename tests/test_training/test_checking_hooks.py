import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import RuntimeInfoHook
from mmengine.logging import MessageHub

from snnet_mm.training import LossCheckHook


@pytest.mark.parametrize('losses, stops', [('1nn1nn1', None), ('1n1nnin', 6)])
def test_loss_check_hook_losses_not_finite_stop_training(losses, stops):
    hub, hook, warned = MessageHub('losses'), LossCheckHook(patience=3), []
    runner = SimpleNamespace(
        message_hub=hub, logger=SimpleNamespace(warning=warned.append)
    )
    hub.update_info('last_ckpt', 'iter_1.pth')
    for runner.iter, name in enumerate(losses[:stops]):
        loss = torch.tensor(dict(n=math.nan, i=math.inf).get(name, 1.0))
        outputs = dict(loss_ce=loss, acc=torch.tensor(math.nan))  # of no pixels
        RuntimeInfoHook().after_train_iter(runner, 0, outputs=outputs)
        message = r'iterations 4 to 6: .*iter_1\.pth'
        stop = pytest.raises(ValueError, match=message)
        with stop if runner.iter + 1 == stops else nullcontext():
            hook.after_train_iter(runner, 0, outputs=outputs)
    first = [losses.index('n') + 1, losses.rindex('1n') + 2]
    assert warned == [f'loss=nan at iteration {i}.' for i in first]
