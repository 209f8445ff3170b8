"""What a test of stitches writes, from which an interrupted one resumes."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from pprint import pformat

from mmengine.dataset import BaseDataset
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.runner import Runner
from torch.utils.data import Dataset

from snnet_mm.runtime.record import file_facts
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import digest
from snnet_mm.utils.base_checkpoint import weights_digest

from .image_scores import ImageScores
from .metric_buffers import StitchScores

RESULTS, IMAGE_SCORES = 'stitches.json', 'per_image.npz'
# Keys of the config and of its ``test_cfg`` on which the scores of a stitch depend.
CONFIG_KEYS = 'model', 'data_preprocessor', 'test_dataloader', 'test_evaluator'
TEST_KEYS = 'type', 'fp16', 'metric', 'resize'
FILES = 'img_path', 'seg_map_path', 'depth_map_path'  # of an image and its labels


class WrittenResults:
    """Results of a test, written to a folder after each pass over the data.

    The folder has ``stitches.json`` and, for metrics with per-image statistics,
    ``per_image.npz``. Only the main process writes. ``dataset`` has the tested images,
    of ``data_size`` in all; ``metrics`` are by stitch id and name.
    """

    def __init__(
        self,
        costs: StitchTable,
        folder: Path,
        runner: Runner,
        dataset: Dataset,
        data_size: int,
        metric: str | None = None,
        lower_is_better: Collection[str] | None = None,
    ) -> None:
        self.costs, self.folder, self.number = costs, folder, len(dataset)
        self.metric, self.lower_is_better = metric, lower_is_better
        self.data_size, self.digest = data_size, identify(runner, dataset)
        self.metrics: dict[int, dict[str, float]] = {}
        self._images: list[ImageScores] = []

    def resume(self, work_dir: Path) -> None:
        """Load the newest results of the same test, possibly of other stitches.

        They may be in the folder, or in the folders of a work directory.
        """
        if is_main_process():
            files = {self.folder / RESULTS, *work_dir.glob(f'*/{RESULTS}')}
            files = filter(Path.is_file, files)
            for path in sorted(files, key=lambda path: path.stat().st_mtime):
                table = StitchTable.read(path)
                if table.digest == self.digest:
                    scores = path.with_name(IMAGE_SCORES)
                    self.metrics = {i: dict(table[i].metrics) for i in table}
                    self.number = table.shared('num_images')
                    known = scores.is_file()
                    self._images = [ImageScores.read(scores, table)] if known else []
        found = [self.metrics, self.number]
        broadcast_object_list(found)
        self.metrics, self.number = found

    def add(self, scores: Mapping[int, StitchScores]) -> None:
        """Write the scores of a pass, by stitch id, with those of earlier passes."""
        self.metrics |= {i: found.metrics for i, found in scores.items()}
        self.number = next(iter(scores.values())).num_images
        self._images += [found.images for found in scores.values() if found.images]
        if is_main_process() and (table := self.table()) is not None:
            known = {i for part in self._images for i in part.ids}
            if known == self.metrics.keys():
                images = ImageScores.stack(self._images)
                replace(images, digest=self.digest).save(self.folder / IMAGE_SCORES)
            table.save(self.folder / RESULTS)

    def table(self) -> StitchTable | None:
        """Return costs and metrics of the tested stitches; None without metrics."""
        if not any(self.metrics.values()):
            return None
        metrics = {i: self.metrics[i] for i in sorted(self.metrics)}
        table = self.costs.with_metrics(metrics, self.number, self.lower_is_better)
        partial = self.data_size if self.number < self.data_size else None
        table = replace(table, data_size=partial, digest=self.digest)
        return table.ranked_by(self.metric)


def identify(runner: Runner, dataset: Dataset) -> str | None:
    """Return a digest of everything that affects the scores of a test.

    It is None in all but the main process, although all must call this.
    """
    cfg, images = runner.cfg.to_dict(), [len(dataset)]
    if isinstance(dataset, BaseDataset):
        # Overrides of get_data_info may load or sample images.
        infos = (BaseDataset.get_data_info(dataset, i) for i in range(len(dataset)))
        paths = [[info.get(key) for key in FILES] for info in infos]
        paths.append([dataset.ann_file])
        images = [[p, file_facts(p)] for p in chain(*paths) if isinstance(p, str)]
    settings = [cfg.get(key) for key in CONFIG_KEYS]
    settings += [(cfg.get('test_cfg') or {}).get(key) for key in TEST_KEYS]
    weights = runner.model.state_dict()  # which sharded models gather
    if not is_main_process():
        return None
    weights = {k.removeprefix('module.'): v for k, v in weights.items()}  # of DDP
    # Keys are sorted: a dumped config has them in another order.
    return digest([pformat(settings), repr(images), weights_digest(weights)])
