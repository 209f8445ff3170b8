"""The CPU that times are measured on."""

import os
import platform
from pathlib import Path

ARM = 'CPU implementer', 'CPU variant', 'CPU part'  # in place of a name


def processor() -> str:
    """Return the model of the CPU, in Linux' words or else in Python's."""
    info, found = Path('/proc/cpuinfo'), {}
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(':')
        found.setdefault(key.strip(), value.strip())
    parts = ' '.join(f'{key} {found[key]}' for key in ARM if key in found)
    return found.get('model name') or parts or platform.processor() or 'unknown CPU'


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
