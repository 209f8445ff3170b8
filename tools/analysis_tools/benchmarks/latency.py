"""Latency of stitches predicted from parts against measured end to end."""

import random
from statistics import median

from snnet_mm.evaluation import measure_latency
from snnet_mm.models import find_stitched_backbone

from ._common import CAMVID_SIZE, camvid_model, devices

ROUNDS, STITCHES = 20, 30


def run() -> dict:
    figures = {device: measure(device) for device in devices()}
    errors = {
        device: [abs(row['error']) for row in rows] for device, rows in figures.items()
    }
    return dict(
        checks=[row for rows in figures.values() for row in rows],
        median_error={device: median(e) for device, e in errors.items()},
        worst_error={device: max(e) for device, e in errors.items()},
    )


def measure(device: str) -> list[dict]:
    model = camvid_model(device)
    space = find_stitched_backbone(model).space
    chosen = sorted(random.Random(0).sample(space.ids, STITCHES))
    latencies = measure_latency(model, CAMVID_SIZE, rounds=ROUNDS, check=chosen)
    return [
        dict(
            stitch=check.stitch_id,
            device=device,
            route=space.describe(space[check.stitch_id]),
            predicted_ms=check.predicted,
            measured_ms=check.measured,
            error=check.error,
            spread=check.spread,
        )
        for check in latencies.checks
    ]
