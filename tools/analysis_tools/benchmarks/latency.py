"""Latency of stitches predicted from parts against measured end to end."""

import random
from statistics import median

from snnet_mm.analysis import measure_latency
from snnet_mm.models import find_stitched_backbone

from ._common import CAMVID_SIZE, camvid_model

ROUNDS, STITCHES = 20, 30


def run() -> dict:
    model = camvid_model()
    space = find_stitched_backbone(model).space
    chosen = sorted(random.Random(0).sample(space.ids, STITCHES))
    latencies = measure_latency(model, CAMVID_SIZE, rounds=ROUNDS, check=chosen)
    rows = [
        dict(
            stitch=check.stitch_id,
            route=space.describe(space[check.stitch_id]),
            predicted_ms=check.predicted,
            measured_ms=check.measured,
            error=check.error,
            spread=check.spread,
        )
        for check in latencies.checks
    ]
    errors = [abs(check.error) for check in latencies.checks]
    return dict(checks=rows, median_error=median(errors), worst_error=max(errors))
