"""Waiting before work starts: importing the package, and the costs of all stitches.

Importing is timed in new processes, with mmengine's runner imported before. Costs are
those of DeiT3 S/L at 512x512, against counting one stitch after the other, on meta
tensors too, which is what remains of the authors' way without its arithmetic.
"""

import subprocess
import sys
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.evaluation import cost_table
from snnet_mm.models import set_stitch

from ._common import S_L, build, elapsed_ms

ROUNDS, SIZE = 9, (512, 512)
IMPORT = """
import time, mmengine.runner
start = time.perf_counter()
import snnet_mm
print(time.perf_counter() - start)
"""


@torch.no_grad()
def run() -> dict:
    command = [sys.executable, '-c', IMPORT]
    imports = [float(subprocess.check_output(command)) for _ in range(ROUNDS)]
    backbone = build(S_L, 'meta').backbone
    images = torch.empty(1, 3, *SIZE, device='meta')
    together = [elapsed_ms(lambda: cost_table(backbone, SIZE)) for _ in range(ROUNDS)]

    def one_at_a_time() -> None:
        for stitch_id in backbone.space.ids:
            set_stitch(backbone, stitch_id)
            with FlopCounterMode(display=False):
                backbone(images)

    alone = elapsed_ms(one_at_a_time)
    return dict(
        import_s=median(imports),
        stitches=len(backbone.space.ids),
        cost_table_s=median(together) / 1e3,
        one_at_a_time_s=alone / 1e3,
        ratio=alone / median(together),
    )
