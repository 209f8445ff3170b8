"""Connection to Ray on this machine or on a cluster."""

import ray

OBJECT_STORE = 2**28  # bytes, for images passed between processes
TRIES = 3


def start_ray(cpus: int, address: str | None = None) -> None:
    """Connect to a Ray cluster or, without an address, start one on this machine.

    Args:
        cpus: CPUs that Ray may use if it is started on this machine.
        address: Address of a cluster, such as ``'10.0.0.1:6379'``.

    Raises:
        ValueError: If Ray does not start in three attempts. An attempt fails if Ray's
            own processes take more than 15 seconds, as on a machine with busy CPUs.
    """
    common = dict(log_to_driver=False, logging_level='warning')
    if address is not None:
        ray.init(address, **common)
        return
    size = dict(object_store_memory=OBJECT_STORE, include_dashboard=False)
    for left in reversed(range(TRIES)):
        try:
            ray.init('local', num_cpus=cpus, **size, **common)
            return
        except Exception as error:  # Ray raises no specific class
            ray.shutdown()
            if not left:
                reason = f'Ray did not start in {TRIES} attempts: {error}'
                raise ValueError(f'{reason} Are all processors busy?') from error
