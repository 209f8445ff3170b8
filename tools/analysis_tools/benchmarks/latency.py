"""Latency of stitches predicted from parts against measured end to end."""

import random
from statistics import median

from snnet_mm.evaluation import measure_latency
from snnet_mm.models import find_stitched_backbone

from ._common import CAMVID, CAMVID_SIZE, build, devices

ROUNDS, STITCHES = 20, 30


def run() -> dict:
    rows, figures = [], {}
    for device in devices():
        model = build(CAMVID, device)
        ids = find_stitched_backbone(model).space.ids
        chosen = sorted(random.Random(0).sample(ids, STITCHES))
        checks = measure_latency(model, CAMVID_SIZE, rounds=ROUNDS, check=chosen).checks
        for check in checks:
            row = dict(stitch=check.stitch_id, device=device)
            row |= dict(predicted_ms=check.predicted, measured_ms=check.measured)
            rows.append(row | dict(error=check.error, spread=check.spread))
        errors = [abs(check.error) for check in checks]
        figures[device] = dict(median_error=median(errors), worst_error=max(errors))
    return dict(checks=rows, **figures)
