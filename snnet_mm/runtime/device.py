"""The CPU that times are measured on."""

import os
import platform
from pathlib import Path

# Names are not enough: VMs may report only 'AMD EPYC', and ARM reports none.
NUMBERS = 'cpu family', 'model', 'stepping', 'CPU implementer', 'CPU variant'
NUMBERS += ('CPU part',)


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
