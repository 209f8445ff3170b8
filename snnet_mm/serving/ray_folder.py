"""Prediction of image folders by several processes, fed by Ray Data."""

import json
from collections.abc import Iterable, Mapping

from snnet_mm.runtime.folder import Folder, Predict

BLOCKS = 4  # per worker, so that all workers finish at a similar time


class _Worker:
    """Predicts the batches that Ray Data assigns to one process."""

    def __init__(self, predict: Predict, folder: Folder) -> None:
        self._predict, self._folder = predict, folder

    def __call__(self, batch: Mapping[str, Iterable[int]]) -> dict[str, list[str]]:
        images = [self._folder.left[i] for i in batch['id']]
        return dict(why=[json.dumps(self._folder.predict(self._predict, images))])


def predict_folder_on_ray(
    predict: Predict,
    folder: Folder,
    batch_size: int = 8,
    workers: int = 2,
    gpus: int = 0,
) -> dict[str, str]:
    """Predict a folder with several processes, on all machines of a Ray cluster.

    Folders and files must have the same paths on all machines. If a worker dies, Ray
    replaces it and repeats its batches.

    Args:
        predict: Predicts a list of images, such as
            :meth:`StitchRuntime.predict_batch`; pickled to every worker.
        folder: See :func:`predict_folder`.
        batch_size: Images per call.
        workers: Number of processes.
        gpus: GPUs of each process.
    """
    import ray.data

    folder.begin()
    reasons, number = {}, len(folder.left)
    if number:
        blocks = min(BLOCKS * workers, number)
        done = ray.data.range(number, override_num_blocks=blocks).map_batches(
            _Worker, fn_constructor_args=(predict, folder), batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=workers), num_cpus=1,
            num_gpus=gpus,
        )  # fmt: skip
        for row in done.iter_rows():
            reasons |= json.loads(row['why'])
    return folder.finish(reasons)
