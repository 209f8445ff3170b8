"""Folders of images predicted by several processes, which Ray Data feeds."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from snnet_mm.runtime import predict_folder
from snnet_mm.runtime.folder import Summary, count_done, list_images

PARTS = 4  # shards of each worker, so that none waits long for the last


class Shards:
    """Predicts the shards that Ray Data hands to one process."""

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
    """Predict a folder by several processes, on all machines of a Ray cluster.

    Folders and files have the same place on all machines. A worker that dies is
    replaced, and the new one goes on where it stopped.

    Args:
        build: Returns, in every worker, what predicts images.
        task: As in :func:`predict_folder`, like all but ``workers``.
        classes: Names of the classes.
        source: Folder or list of images.
        out: Output folder.
        batch_size: Images of a call.
        workers: Processes with a callable each.
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
    # What is left are images that cannot be read, and one file of all.
    found = predict_folder(build(), *arguments)
    for i in range(1, number + 1):
        for path in Path(out).glob(f'*_{i}of{number}.*'):
            path.unlink()
    predicted = found.predicted + found.before - before
    return Summary(predicted, before, found.unreadable)
