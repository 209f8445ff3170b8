"""Stitches inside the full model against the models exported for them alone."""

import torch

from snnet_mm.deploy.single import single_stitch
from snnet_mm.evaluation import cost_table
from snnet_mm.evaluation.parts import run_model
from snnet_mm.models import set_stitch

from ._common import S_L, autocast, build, devices, in_turn, limits, limits_ms

SIZE, ROUNDS, BETWEEN = 512, 9, 6


def run() -> dict:
    return dict(stitches=[row for device in devices() for row in measure(device)])


@torch.inference_mode()
def measure(device: str) -> list[dict]:
    model = build(S_L, device)
    flops = cost_table(model.backbone, (SIZE, SIZE)).column('flops')
    by_cost = sorted(flops, key=flops.get)
    step = len(by_cost) // (BETWEEN + 1)
    images = torch.randn(1, 3, SIZE, SIZE, device=device)
    rates, rows = limits(device), []
    for stitch_id in (0, 1, *by_cost[step : step * BETWEEN + 1 : step]):
        set_stitch(model, stitch_id)
        alone = single_stitch(model.cfg, model, stitch_id)[1].to(device)
        runs = dict(
            full_ms=lambda: run_model(model, images),
            alone_ms=lambda alone=alone: run_model(alone, images),
        )
        with autocast(device):
            torch.testing.assert_close(
                runs['alone_ms'](), runs['full_ms'](), rtol=1e-2, atol=1e-2
            )
            times = in_turn(runs, ROUNDS)
        row = dict(stitch=stitch_id, device=device, gflops=flops[stitch_id] / 1e9)
        row |= times | dict(ratio=times['full_ms'] / times['alone_ms'])
        rows.append(row | limits_ms(alone, flops[stitch_id], rates))
    return rows
