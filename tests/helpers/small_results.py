"""Results of four stitches with latencies, ranked by a metric to minimise."""

from dataclasses import replace

from snnet_mm.stitching import Cost, Setup, StitchTable, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
GFLOPS = {0: 3, 1: 30, 2: 20, 5: 10}
MS = {0: 9, 1: 8, 2: 4, 5: 6}
COSTS = StitchTable.counted(
    {i: Cost(g * 10**9, 5 * 10**6) for i, g in GFLOPS.items()}, (32, 48), SPACE
).measured(Setup('a board', 2, 'fp32'), MS)
RMSE = {0: 0.9, 1: 0.5, 2: 0.8, 5: 0.6}
METRICS = {i: dict(RMSE=v, delta1=1 - v / 2) for i, v in RMSE.items()}
RESULTS = COSTS.with_metrics(METRICS)
TURNED = replace(RESULTS, directions=dict(RMSE='higher'))
