"""Ray on this machine, or a cluster of several."""

import ray

OBJECT_STORE = 2**28  # bytes, for images on their way between processes
TRIES = 3


def start_ray(cpus: int, address: str | None = None) -> None:
    """Connect to the Ray cluster at an address, by default start one on this machine.

    Args:
        cpus: Processors that Ray may use on this machine.
        address: Address of a cluster, such as ``'10.0.0.1:6379'``.

    Raises:
        ValueError: If Ray does not start. It stops if its own processes need more than
            15 seconds, as on a machine whose processors are busy, and is started again.
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
        except Exception as error:  # Ray has no class for it
            ray.shutdown()
            if not left:
                reason = f'Ray did not start in {TRIES} attempts: {error}'
                raise ValueError(f'{reason} Are all processors busy?') from error
