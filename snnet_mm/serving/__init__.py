"""Bundles on Ray: a deadline-aware HTTP service, and prediction of image folders.

It requires the extra ``ray``, but neither torch nor mm packages.
"""

import ray

from .ray_folder import predict_folder_on_ray
from .service import StitchService, build_service


def start_ray(cpus: int, address: str | None = None, **settings: object) -> None:
    """Connect to a Ray cluster or, without an address, start one on this machine.

    Args:
        cpus: CPUs that Ray may use if it is started on this machine.
        address: Address of a cluster, such as ``'10.0.0.1:6379'``.
        **settings: More settings of ``ray.init`` on this machine.
    """
    settings |= dict(object_store_memory=2**28, include_dashboard=False, num_cpus=cpus)
    # By default Ray gives up after 15 s, which its processes need on busy machines.
    settings['_system_config'] = dict(agent_register_timeout_ms=100_000)
    here = {} if address else settings
    ray.init(address or 'local', log_to_driver=False, logging_level='warning', **here)
