"""The CPU that times are measured on."""

import os
import platform
from pathlib import Path

# Virtual machines name a maker alone, as 'AMD EPYC', and ARM has no names.
NUMBERS = 'cpu family', 'model', 'stepping', 'CPU implementer', 'CPU variant'
NUMBERS += ('CPU part',)


def processor() -> str:
    """Return the name of the CPU and, on Linux, the numbers of its model."""
    info, found = Path('/proc/cpuinfo'), {}
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(':')
        found.setdefault(key.strip(), value.strip())
    name = found.get('model name') or platform.processor() or platform.machine()
    return ', '.join(
        [name, *(f'{key} {found[key]}' for key in NUMBERS if key in found)]
    )


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
