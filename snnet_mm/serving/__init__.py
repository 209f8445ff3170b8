"""Bundles on Ray Serve: a deadline-aware HTTP service.

It requires the extra ``ray``, but neither torch nor mm packages.
"""

import ray

from .service import StitchService, build_service


def start_ray(cpus: int, address: str | None = None, **settings: object) -> None:
    """Connect to a Ray cluster or, without an address, start one on this machine.

    Args:
        cpus: CPUs that Ray may use if it is started on this machine.
        address: Address of a cluster, such as ``'10.0.0.1:6379'``.
        **settings: More settings of ``ray.init`` on this machine.
    """
    common = dict(log_to_driver=False, logging_level='warning')
    if address is not None:
        ray.init(address, **common)
        return
    # By default Ray gives up after 15 s, which its processes need on busy machines.
    patient = dict(agent_register_timeout_ms=100_000)
    common |= dict(object_store_memory=2**28, include_dashboard=False)
    ray.init('local', num_cpus=cpus, _system_config=patient, **common, **settings)
