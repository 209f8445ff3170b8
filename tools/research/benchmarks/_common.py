"""Models and timers that the parts share."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

CONFIGS = Path(__file__).parents[3] / 'configs'


def read_config(name: str) -> Config:
    """Read a config below ``configs`` and activate its default scope."""
    cfg = Config.fromfile(CONFIGS / name)
    init_default_scope(cfg.default_scope)
    return cfg


def build(cfg: Config, device: str) -> nn.Module:
    """Build the model of a config with random weights, in eval mode."""
    torch.manual_seed(0)
    return MODELS.build(cfg.model).to(device).eval()


def devices() -> list[str]:
    return ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]


def elapsed_ms(run: Callable[[], object]) -> float:
    """Return the milliseconds of a call, including pending GPU work."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000


def in_turn(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return median milliseconds of several calls, each timed once per round.

    Other load on the machine thus affects all calls equally. A first round warms up.
    """
    times = [{k: elapsed_ms(run) for k, run in runs.items()} for _ in range(rounds + 1)]
    return {key: median(row[key] for row in times[1:]) for key in runs}
