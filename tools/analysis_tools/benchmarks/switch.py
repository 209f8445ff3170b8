"""Time of a switch of the stitch, and its operations on tensors."""

from statistics import median

from torch.utils._python_dispatch import TorchDispatchMode

from snnet_mm.apis import find_stitched_backbone, set_stitch

from ._common import CAMVID, S_L, build, elapsed_ms

MODELS = {
    'CamVid pair': CAMVID,
    'DeiT3 S/L': S_L,
    'DeiT3 B/L': 'setr/setr-naive_snnetv2-deit3-b-l_8xb2-160k_ade20k-512x512.py',
}
ROUNDS = 10


class CountOperations(TorchDispatchMode):
    """Counts operations on tensors."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def run() -> dict:
    rows = []
    for name, config in MODELS.items():
        model = build(config, 'meta')  # a switch reads no weight
        ids = find_stitched_backbone(model).space.ids
        times = sorted(
            elapsed_ms(lambda i=i, model=model: set_stitch(model, i))
            for _ in range(ROUNDS)
            for i in ids
        )
        with CountOperations() as operations:
            for i in ids:
                set_stitch(model, i)
        row = dict(model=name, modules=len(list(model.modules())), stitches=len(ids))
        worst = times[int(0.99 * len(times))]
        row |= dict(median_ms=median(times), percentile_99_ms=worst)
        rows.append(row | dict(tensor_operations=operations.number))
    return dict(switches=rows)
