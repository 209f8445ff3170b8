"""Prediction of image folders by several processes, fed by Ray Data."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from snnet_mm.runtime import predict_folder
from snnet_mm.runtime.folder import Summary, count_done, list_images

PARTS = 4  # shards per worker, so that all workers finish at a similar time


class Shards:
    """Predicts the shards that Ray Data assigns to one process."""

    def __init__(self, build: Callable[[], Callable], arguments: Sequence) -> None:
        self._predict, self._arguments = build(), arguments

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        shards = [(int(i) + 1, self._arguments[-1]) for i in batch['id']]
        for shard in shards:
            predict_folder(self._predict, *self._arguments[:-1], shard)
        return batch


def predict_folder_on_ray(
    build: Callable[[], Callable],
    task: str,
    classes: Sequence[str],
    source: str | os.PathLike,
    out: str | os.PathLike,
    batch_size: int = 8,
    workers: int = 2,
) -> Summary:
    """Predict a folder with several processes, on all machines of a Ray cluster.

    Folders and files must have the same paths on all machines. If a worker dies, its
    replacement resumes where it stopped.

    Args:
        build: Called in every worker; returns the callable that predicts images.
        task: See :func:`predict_folder`, also for all arguments but ``workers``.
        classes: Names of the classes.
        source: Folder or list of images.
        out: Output folder.
        batch_size: Images per call.
        workers: Number of processes, each with its own callable.
    """
    import ray.data

    number = min(PARTS * workers, len(list_images(source, out)))
    before = count_done(task, source, out)
    arguments = task, tuple(classes), str(source), str(out), batch_size
    ids = [dict(id=i) for i in range(number)]
    shards = ray.data.from_items(ids, override_num_blocks=number)
    done = shards.map_batches(
        Shards, fn_constructor_args=(build, (*arguments, number)), batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=workers), num_cpus=1,
    )  # fmt: skip
    assert done.materialize().count() == number
    # Retries images that could not be read, and merges the outputs of the shards.
    found = predict_folder(build(), *arguments)
    for i in range(1, number + 1):
        for path in Path(out).glob(f'*_{i}of{number}.*'):
            path.unlink()
    predicted = found.predicted + found.before - before
    return Summary(predicted, before, found.unreadable)
