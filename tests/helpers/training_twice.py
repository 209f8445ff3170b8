"""Training without interruption, and resumed."""

import json
import shutil
from pathlib import Path

import torch
from equality import assert_same
from watching_hooks import in_folder, train

from snnet_mm.utils import load_weights_only


def history(work_dir, end):
    """Return the last checkpoint, the loss of every step, and logged scalars."""
    checkpoint = load_weights_only(work_dir / f'iter_{end}.pth')
    losses = checkpoint['message_hub']['log_scalars']['train/loss'].data[0].tolist()
    (path,) = work_dir.glob('*/vis_data/scalars.json')
    lines = map(json.loads, path.read_text().splitlines())
    logged = {
        line['step']: {k: v for k, v in line.items() if 'time' not in k}
        for line in lines
        if 'loss' in line
    }
    return checkpoint, losses, logged


def train_twice(cfg, start, end, **changes):
    """Train to ``end``, resume from ``start`` in another folder, assert equality.

    ``changes`` apply to the resumed run. Returns its folder and the recorders of both
    runs.
    """
    interval, cfg.train_cfg.max_iters = end - start, end
    cfg.default_hooks.logger.interval = interval
    cfg.default_hooks.checkpoint.update(interval=interval, max_keep_ckpts=-1)
    straight, resumed = (Path(cfg.work_dir, name) for name in ('straight', 'resumed'))
    _, recorder = train(in_folder(cfg, straight.name))
    resumed.mkdir()
    shutil.copy(straight / f'iter_{start}.pth', resumed)
    torch.manual_seed(100)
    _, recorder_of_rest = train(in_folder(cfg, resumed.name, resume=True, **changes))

    whole, losses, logged = history(straight, end)
    pieces, losses_of_pieces, logged_of_pieces = history(resumed, end)
    for key in ('state_dict', 'optimizer', 'param_schedulers', 'ema_state_dict'):
        assert_same(whole.get(key), pieces.get(key))
    old, new = (c['message_hub']['runtime_info'] for c in (whole, pieces))
    for key in ('stitch_histogram', 'stitch_scores'):
        assert old.get(key) == new.get(key)
    assert len(losses) == end
    assert losses == losses_of_pieces
    assert {'loss', 'lr', 'stitch_gflops'} <= logged[end].keys()
    assert logged_of_pieces == {k: v for k, v in logged.items() if k > start}
    return resumed, recorder, recorder_of_rest
