"""The machine that figures were measured on."""

import os
from collections.abc import Collection
from pathlib import Path

import torch

# Instructions that make small numbers pay, as Linux names them.
INSTRUCTIONS = dict(
    int8=('avx_vnni', 'avx512_vnni', 'amx_int8', 'asimddp'),
    bf16=('avx512_bf16', 'amx_bf16', 'bf16'),
)


def machine() -> dict:
    """Collect what the figures of a run depend on.

    ``instructions`` has those for int8 and bf16, None where they are not known.
    """
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    names = [x.partition(': ')[2] for x in lines if x.startswith('model name')]
    flags = [x for x in lines if x.startswith(('flags', 'Features'))][:1]
    found = flags and {*flags[0].partition(': ')[2].split()}
    return dict(
        processor=names[0] if names else None,
        cores=os.cpu_count(),
        load_average=os.getloadavg()[0],
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        instructions={
            precision: [name for name in known if name in found] if found else None
            for precision, known in INSTRUCTIONS.items()
        },
    )


def print_instructions(precisions: Collection[str]) -> None:
    """Say whether this CPU has the instructions that make a precision pay."""
    for precision, found in machine()['instructions'].items():
        if precision in precisions and found is not None:
            names = ', '.join(found) or 'none: expect little, or less than nothing'
            print(f'Instructions of this CPU for {precision}: {names}')
