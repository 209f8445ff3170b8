"""Prediction of image folders by several processes, fed by Ray Data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from snnet_mm.runtime.folder import Folder, Predict, Summary
from snnet_mm.runtime.image_io import ImageFile

BLOCKS = 4  # per worker, so that all workers finish at a similar time


class _Worker:
    """Predicts the batches that Ray Data assigns to one process."""

    def __init__(self, build: Callable[[], Predict], folder: Folder) -> None:
        self._predict, self._folder = build(), folder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        columns = map(Path, batch['path']), batch['name'], batch['stem']
        images = [ImageFile(*row) for row in zip(*columns, strict=True)]
        reasons = self._folder.predict(self._predict, images)
        why = [reasons.get(image.name, '') for image in images]
        return dict(name=batch['name'], why=why)


def predict_folder_on_ray(
    build: Callable[[], Predict], folder: Folder, batch_size: int = 8, workers: int = 2
) -> Summary:
    """Predict a folder with several processes, on all machines of a Ray cluster.

    Folders and files must have the same paths on all machines. If a worker dies, Ray
    replaces it and repeats its batches.

    Args:
        build: Called in every worker; returns the callable that predicts images.
        folder: See :func:`predict_folder`.
        batch_size: Images per call.
        workers: Number of processes, each with its own callable.
    """
    import ray.data

    rows = [image._asdict() | dict(path=str(image.path)) for image in folder.left]
    if not rows:
        return folder.finish({})
    blocks = min(BLOCKS * workers, len(rows))
    done = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        _Worker, fn_constructor_args=(build, folder), batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers), num_cpus=1,
    )  # fmt: skip
    return folder.finish({r['name']: r['why'] for r in done.iter_rows() if r['why']})
