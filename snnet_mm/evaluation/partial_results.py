"""Scores on disk, from which an interrupted test goes on."""

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

# Parts of a config that change the scores of a stitch.
CONFIG_KEYS = 'model', 'data_preprocessor', 'test_dataloader', 'test_evaluator'
TEST_KEYS = 'type', 'fp16', 'metric'


class PartialResults:
    """Scores of the groups of stitches that a test has finished.

    The main process keeps them in a file, from which an interrupted test is resumed.
    Nothing in the file can run.

    Args:
        path: The file, which one test at a time may use.
        identity: Digest of what the scores depend on; see :func:`identify`.
        resume: Whether to keep the scores of an interrupted test of the same identity.
        logger: Gets a line about what is resumed.
    """

    def __init__(self, path: Path, identity: str, resume: bool, logger: Logger) -> None:
        self.path, self.identity = path, identity
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
        """Keep the scores of a group, by stitch and what else tells them apart."""
        self.scores |= scores
        if is_main_process():
            rows = {
                k: [*s[:2], s.images and vars(s.images)] for k, s in self.scores.items()
            }
            with atomic_path(self.path) as temporary:
                torch.save(dict(identity=self.identity, scores=rows), temporary)

    def remove(self) -> None:
        """Remove the file: the test is complete."""
        if is_main_process():
            self.path.unlink(missing_ok=True)
            remove_leftovers(self.path.parent, self.path.name)

    def _read(self) -> tuple[dict[tuple, StitchScores], str]:
        """Return the scores of the file, none if it does not fit, and what is said."""
        try:
            found = load_weights_only(self.path)
        except ValueError as error:
            return {}, f'Starting anew: {error}'
        if found['identity'] != self.identity:
            return {}, (
                f'Starting anew: {self.path} is of another test, whose model, weights, '
                'images or settings differ'
            )
        scores = {
            key: StitchScores(*known, images and ImageScores(**images))
            for key, (*known, images) in found['scores'].items()
        }
        return scores, f'Resuming with {len(scores)} stitches of {self.path} finished'


def identify(runner: Runner, dataset: Dataset, statistics: Mapping) -> str:
    """Return a digest of what the scores of a test depend on.

    ``statistics`` of batch norms are given by stitch and name.
    """
    cfg, images = runner.cfg, [len(dataset)]
    test_cfg = cfg.get('test_cfg') or {}
    settings = [cfg.get(key) for key in CONFIG_KEYS]
    settings += [test_cfg.get(key) for key in TEST_KEYS]
    if isinstance(dataset, BaseDataset):  # whose subclasses may load or draw the image
        infos = (BaseDataset.get_data_info(dataset, i) for i in range(len(dataset)))
        images = [info.get('img_path') for info in infos]
    weights = dict(runner.model.state_dict())
    weights |= {f'{i} {k}': v for i, own in statistics.items() for k, v in own.items()}
    return digest([repr(settings), repr(images), digest_of(weights)])
