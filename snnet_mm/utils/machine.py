"""The machine on which results were measured."""

import os

from snnet_mm.runtime.device import processor


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
