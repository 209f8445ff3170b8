"""The machine on which results were measured."""

import os
import sys

from snnet_mm.runtime.device import processor


def devices() -> list[str]:
    """Return the names of the processor and, if torch is loaded, of all GPUs."""
    names, torch = [processor()], sys.modules.get('torch')
    count = torch.cuda.device_count() if torch else 0
    return names + [torch.cuda.get_device_name(i) for i in range(count)]


def machine() -> dict:
    """Return the hardware and software on which measurements depend."""
    import torch

    return dict(
        processor=processor(),
        cores=os.cpu_count(),
        load_average=os.getloadavg()[0],
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        torch=torch.__version__,
        threads=torch.get_num_threads(),
    )
