"""The device that graphs run on, and the CPU that times are measured on."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from .checks import refusal

# onnxruntime's execution providers by the names that this package gives them.
PROVIDERS = dict(
    cuda='CUDAExecutionProvider',
    tensorrt='TensorrtExecutionProvider',
    openvino='OpenVINOExecutionProvider',
    coreml='CoreMLExecutionProvider',
    dml='DmlExecutionProvider',
    cpu='CPUExecutionProvider',
)

# Names are not enough: VMs may report only 'AMD EPYC', and ARM reports none.
NUMBERS = 'cpu family', 'model', 'stepping', 'CPU implementer', 'CPU variant'
NUMBERS += ('CPU part',)
ON_GPUS = 'cuda', 'tensorrt'  # of NVIDIA, which Ray must lend to a process


def processor() -> str:
    """Return the name of the CPU and, on Linux, its model numbers."""
    info, found = Path('/proc/cpuinfo'), {}
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(':')
        found.setdefault(key.strip(), value.strip())
    name = found.get('model name') or platform.processor() or platform.machine()
    return ', '.join(
        [name, *(f'{key} {found[key]}' for key in NUMBERS if key in found)]
    )


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """Return the number of threads of ``OMP_NUM_THREADS``, or of usable cores."""
    asked = os.environ.get('OMP_NUM_THREADS', '').partition(',')[0]
    return int(asked) if asked.isdecimal() and int(asked) else usable_cores()


def choose_provider(names: str | Sequence[str]) -> str:
    """Return the first of some execution providers that onnxruntime was built with.

    Args:
        names: One of :data:`PROVIDERS`, or several in order of preference.

    Raises:
        ValueError: If a name is unknown, or none is installed. The CPU is a provider
            like any other: without its name nothing runs there.
    """
    import onnxruntime

    names = (names,) if isinstance(names, str) else tuple(names)
    installed = onnxruntime.get_available_providers()
    known = [name for name, own in PROVIDERS.items() if own in installed]
    for name in names:
        if name not in PROVIDERS:
            raise refusal('--provider', name, PROVIDERS)
        if name in known:
            return name
    expected = f'one of {", ".join(known)}, which this onnxruntime has (others come '
    expected += 'with onnxruntime-gpu, -openvino or -directml in its place)'
    raise refusal('--provider', ','.join(names), expected)
