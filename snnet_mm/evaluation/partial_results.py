"""Scores of stitches: collected in a pass, kept on disk until the test is complete."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from logging import Logger
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import Dataset

from snnet_mm.tasks import task_of
from snnet_mm.utils import (
    atomic_path,
    check,
    digest,
    load_weights_only,
    quiet_terminal,
)

from .image_scores import ImageScores, gathered_names, image_scores, recorded_results

# Parts of a config that change the scores of a stitch.
CONFIG_KEYS = 'model', 'data_preprocessor', 'test_dataloader', 'test_evaluator'
TEST_KEYS = 'type', 'fp16', 'metric', 'recalibrate_bn'

Identity = dict[str, str]


class StitchScores(NamedTuple):
    """Metrics of a stitch, the number of images, and its scores image by image."""

    metrics: dict[str, float]
    num_images: int
    images: ImageScores | None


class MetricBuffers:
    """The results that metrics keep per image, one set for each of several stitches.

    mmengine's metrics collect in ``metric.results`` and compute at the end. The lists
    are exchanged whenever another stitch is evaluated, so that one evaluator, with its
    data set's annotations, serves all.

    Args:
        evaluator: The evaluator.
        ids: Stitches that are evaluated together.
    """

    def __init__(self, evaluator: Evaluator, ids: Sequence[int]) -> None:
        self.evaluator, self.ids = evaluator, tuple(ids)
        for kind in map(type, evaluator.metrics):
            own = kind.evaluate is BaseMetric.evaluate
            allowed = 'metrics that collect results themselves, not in others'
            check(own, 'test_evaluator', kind.__name__, allowed)
        self.names: list[str] = []  # of the images of this process
        self._collected = {i: [[] for _ in evaluator.metrics] for i in self.ids}

    @contextmanager
    def of(self, stitch_id: int) -> Iterator[None]:
        """Let the metrics of the evaluator collect for a stitch."""
        metrics = self.evaluator.metrics
        for metric, buffer in zip(metrics, self._collected[stitch_id], strict=True):
            metric.results = buffer
        try:
            yield
        finally:
            for metric in metrics:
                metric.results = []

    def scores(
        self, runner: Runner, num_images: int, metric: str | None = None
    ) -> dict[int, StitchScores]:
        """Compute the metrics of all stitches over the images that all processes saw.

        Tables of classes go to the log file only.

        Args:
            runner: The runner.
            num_images: Images of the data set, beyond which a sampler has padded.
            metric: The ranking metric, whose scores are kept image by image.
        """
        names = gathered_names(self.names, num_images)
        scores = {}
        for stitch_id in self.ids:
            with quiet_terminal(runner.logger):
                runner.logger.info(f'stitch {stitch_id}:')
                scores[stitch_id] = self._scores(runner, stitch_id, names, metric)
        return scores

    def _scores(
        self, runner: Runner, stitch_id: int, names: Sequence[str], metric: str | None
    ) -> StitchScores:
        of_all = self.evaluator.metrics
        with self.of(stitch_id), recorded_results(of_all) as results:
            values = self.evaluator.evaluate(len(names))
        images = image_scores(stitch_id, of_all, results, values, metric, names)
        metrics = numbers_of(of_all, values)
        for name in values.keys() - metrics.keys():  # such as a confusion matrix
            runner.logger.info(f'{name}: {values[name]}')
        return StitchScores(metrics, len(names), images)


class PartialResults:
    """Scores of the stitches that a test has finished.

    The main process writes every finished group to a file, from which an interrupted
    test is resumed. Nothing in a file can run.

    Args:
        folder: Folder of the files, which one test at a time may use.
        identity: What the scores depend on; see :func:`identify`.
        resume: Whether to keep the scores of an interrupted test of the same identity.
        logger: Gets a line about what is resumed.
    """

    def __init__(
        self, folder: Path, identity: Identity, resume: bool, logger: Logger
    ) -> None:
        self.folder, self.identity = folder, identity
        self.scores: dict[tuple, StitchScores] = {}
        if is_main_process():
            try:
                self.scores = self._read() if resume else {}
                words = (
                    f'Resuming with {len(self.scores)} stitches of {folder} finished'
                )
            except ValueError as error:
                words = f'Starting anew: {error}'
            if resume:
                logger.info(words)
            if not self.scores:
                shutil.rmtree(folder, ignore_errors=True)
        known = [{k: s._replace(images=None) for k, s in self.scores.items()}]
        broadcast_object_list(known)
        self.scores = known[0] | self.scores

    def add(self, scores: Mapping[tuple, StitchScores]) -> None:
        """Keep the scores of a group, by stitch and what else tells them apart."""
        self.scores |= scores
        if not is_main_process():
            return
        rows = {k: (*s[:2], s.images and vars(s.images)) for k, s in scores.items()}
        number = len([*self.folder.glob('group_*.pth')])
        with atomic_path(self.folder / f'group_{number}.pth') as temporary:
            torch.save(dict(identity=self.identity, scores=rows), temporary)

    def remove(self) -> None:
        """Remove the files: the test is complete."""
        if is_main_process():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> dict[tuple, StitchScores]:
        scores = {}
        for file in self.folder.glob('group_*.pth'):
            group = load_weights_only(file)
            found = group['identity']
            if differs := [
                k for k in self.identity if found.get(k) != self.identity[k]
            ]:
                raise ValueError(f'{file} is of another {", ".join(differs)}')
            for key, (*known, images) in group['scores'].items():
                scores[key] = StitchScores(*known, images and ImageScores(**images))
        return scores


def numbers_of(
    metrics: Sequence[BaseMetric], values: Mapping[str, object]
) -> dict[str, float]:
    """Return the values that are single numbers, NaN where they are undefined."""
    for metric in metrics:
        values = task_of(metric).metric_values(metric, values)
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, Real) or getattr(value, 'ndim', None) == 0
    }


def identify(runner: Runner, dataset: Dataset, statistics: Mapping) -> Identity:
    """Return digests of what the scores of a test depend on, by config keys.

    ``statistics`` are those of batch norms, by stitch and name.
    """
    cfg, names = runner.cfg, [len(dataset)]
    parts = {key: repr(cfg.get(key)) for key in CONFIG_KEYS}
    test_cfg = cfg.get('test_cfg') or {}
    parts['test_cfg'] = repr([test_cfg.get(key) for key in TEST_KEYS])
    if test_cfg.get('recalibrate_bn'):
        parts['train_dataloader'] = repr([cfg.get('train_dataloader'), runner.seed])
    if isinstance(dataset, BaseDataset):  # whose subclasses may load or draw the image
        infos = (BaseDataset.get_data_info(dataset, i) for i in range(len(dataset)))
        names = [info.get('img_path') for info in infos]
    parts['images'] = repr(names)
    own = chain.from_iterable(
        values.items() for _, values in sorted(statistics.items())
    )
    tensors = [*runner.model.state_dict().items(), *own]
    weights = ((k, _bytes(t)) for k, t in tensors if isinstance(t, Tensor))
    known = {key: digest([text]) for key, text in parts.items()}
    return known | dict(checkpoint=digest(chain.from_iterable(weights)))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data
