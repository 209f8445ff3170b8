"""Models, clocks and limits that the parts share."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

CONFIGS = Path(__file__).parents[3] / 'configs'
# 32 stitches of 0.6 to 2.9 GFLOPs; how long they take does not depend on the weights.
CAMVID = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
CAMVID_SIZE = (176, 240)
# 134 stitches, 150 classes.
S_L = 'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py'


def read_config(name: str) -> Config:
    """Read a config below ``configs`` and set its scope."""
    cfg = Config.fromfile(CONFIGS / name)
    init_default_scope(cfg.default_scope)
    return cfg


def build(cfg: str | Config, device: str = 'cpu') -> nn.Module:
    """Build the model of a config with random weights, in eval mode."""
    cfg = read_config(cfg) if isinstance(cfg, str) else cfg
    torch.manual_seed(0)
    with torch.device('meta' if device == 'meta' else 'cpu'):
        model = MODELS.build(cfg.model).to(device).eval()
    model.cfg = cfg
    return model


def devices() -> list[str]:
    return ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]


def autocast(device: str) -> AbstractContextManager:
    """Half precision on a GPU, where models run in it."""
    return torch.autocast(device, torch.float16, enabled=device == 'cuda')


def elapsed_ms(run: Callable[[], object]) -> float:
    """Milliseconds of a call, and of what it leaves a GPU to do."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000


def in_turn(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of several things, each timed once per round.

    What else the machine does then weighs on all of them alike. All run once before.
    """
    times = [{k: elapsed_ms(run) for k, run in runs.items()} for _ in range(rounds + 1)]
    return medians(times[1:])


def medians(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {key: median(row[key] for row in rows) for key in rows[0]}


def limits(device: str) -> dict[str, float]:
    """Measure the best of this machine, in the type that models run in.

    Returns 1e9 multiply-accumulates per second of a large matrix product, and 1e9 bytes
    per second of a large copy, read and written.
    """
    half = device == 'cuda'
    dtype = torch.float16 if half else torch.float32
    side, length = (8192, 2**28) if half else (2048, 2**26)
    a = torch.randn(side, side, device=device, dtype=dtype)
    b = torch.empty(length, device=device, dtype=dtype)
    c = torch.empty_like(b)
    times = in_turn(dict(product=lambda: a @ a, copy=lambda: c.copy_(b)), 5)
    gmacs, gbytes = side**3 / times['product'] / 1e6, 2 * b.nbytes / times['copy'] / 1e6
    return dict(gmacs=gmacs, gbytes=gbytes)


def limits_ms(model: nn.Module, macs: int, rates: dict[str, float]) -> dict[str, float]:
    """The least time for the arithmetic of a forward, and to read its weights once."""
    size = sum(p.nbytes for p in model.parameters())
    return dict(
        arithmetic_ms=macs / rates['gmacs'] / 1e6, bytes_ms=size / rates['gbytes'] / 1e6
    )
