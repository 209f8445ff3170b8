"""Latency of stitches predicted from parts against measured end to end."""

from snnet_mm.analysis import measure_latency
from snnet_mm.models import find_stitched_backbone

from ._common import CAMVID_SIZE, camvid_model

ROUNDS = 20


def run() -> dict:
    model = camvid_model()
    space = find_stitched_backbone(model).space
    latencies = measure_latency(model, CAMVID_SIZE, rounds=ROUNDS)
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
    return dict(
        checks=rows, worst_error=max(abs(check.error) for check in latencies.checks)
    )
