"""Scores on disk, from which an interrupted test resumes."""

from collections.abc import Mapping
from logging import Logger
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.runner import Runner
from torch.utils.data import Dataset

from snnet_mm.utils import atomic_path, digest, load_weights_only, remove_leftovers
from snnet_mm.utils.base_checkpoint import digest_of

from .image_scores import ImageScores
from .metric_buffers import StitchScores

# Keys of the config and of its ``test_cfg`` on which the scores of a stitch depend.
CONFIG_KEYS = 'model', 'data_preprocessor', 'test_dataloader', 'test_evaluator'
TEST_KEYS = 'type', 'fp16', 'metric'


class PartialResults:
    """Scores of the groups of stitches that a test has finished.

    The main process saves them to a file, from which an interrupted test resumes.
    Loading the file cannot execute code.

    Args:
        path: The file, named after the test; only one test may use it at a time.
        resume: Whether to load the scores of the file, otherwise it is removed.
        logger: Logger for a message about the resumed scores.
    """

    def __init__(self, path: Path, resume: bool, logger: Logger) -> None:
        self.path = path
        self.scores: dict[tuple, StitchScores] = {}
        if resume and is_main_process():
            self.scores, words = self._read()
            logger.info(words)
        if not self.scores:
            self.remove()
        known = [{k: s._replace(images=None) for k, s in self.scores.items()}]
        broadcast_object_list(known)
        self.scores = known[0] | self.scores

    def add(self, scores: Mapping[tuple, StitchScores]) -> None:
        """Save the scores of a group by stitch id, number of images and image size."""
        self.scores |= scores
        if is_main_process():
            rows = {
                k: [*s[:2], s.images and vars(s.images)] for k, s in self.scores.items()
            }
            with atomic_path(self.path) as temporary:
                torch.save(dict(scores=rows), temporary)

    def remove(self) -> None:
        """Remove the file and the leftovers of interrupted writes."""
        if is_main_process():
            self.path.unlink(missing_ok=True)
            remove_leftovers(self.path.parent, self.path.name)

    def _read(self) -> tuple[dict[tuple, StitchScores], str]:
        """Return the scores of the file, if it is readable, and a log message."""
        try:
            found = load_weights_only(self.path)
        except ValueError as error:
            return {}, (
                f'Starting anew: {error}; tests of another model or of other weights, '
                'images, stitches or settings have files of their own'
            )
        scores = {
            key: StitchScores(*known, images and ImageScores(**images))
            for key, (*known, images) in found['scores'].items()
        }
        return scores, f'Resuming with {len(scores)} stitches of {self.path} finished'


def identify(runner: Runner, dataset: Dataset) -> str:
    """Return a digest of everything that affects the scores of a test."""
    cfg, images = runner.cfg, image_paths(dataset) or [len(dataset)]
    test_cfg = cfg.get('test_cfg') or {}
    settings = [cfg.get(key) for key in CONFIG_KEYS]
    settings += [test_cfg.get(key) for key in TEST_KEYS]
    weights = digest_of(runner.model.state_dict())
    return digest([repr(settings), repr(images), weights])


def image_paths(dataset: Dataset) -> list[str | None]:
    """Return the paths of all images, or an empty list if the data set has no infos."""
    if not isinstance(dataset, BaseDataset):
        return []
    # Overrides may load or sample images.
    infos = (BaseDataset.get_data_info(dataset, i) for i in range(len(dataset)))
    return [info.get('img_path') for info in infos]
