"""Preprocessed images for choosing and fitting chains; labels are not read."""

import json
import os
from collections.abc import Iterator
from copy import copy, deepcopy
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.dataset import BaseDataset, ConcatDataset, pseudo_collate
from mmengine.registry import DATASETS
from torch import Tensor, nn

from snnet_mm.costs import window_of
from snnet_mm.runtime.image_io import SUFFIXES, find_images
from snnet_mm.runtime.record import file_facts
from snnet_mm.utils import check, digest, is_whole, refusal
from snnet_mm.utils.configs import inference_pipeline, innermost, innermost_parts

MAX_BATCH = 8


class ImageBatches:
    """Batches ``(B, 3, H, W)`` of images, reloaded on every pass.

    Images of the training set, or of a folder, pass the test pipeline and the model's
    data preprocessor. Consecutive images of equal size share a batch. Of a model with
    sliding windows, each batch is one window of its images, drawn once.

    Args:
        cfg: Config of the model.
        model: The mm model whose data preprocessor is used.
        folder: Folder of images, searched recursively. Default: the training set.
        seed: Seed of all draws.

    Raises:
        ValueError: If there is no image or no test pipeline.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        folder: str | os.PathLike | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self._seed = model, seed
        loader = cfg.get('test_dataloader')
        check(loader, 'test_dataloader', loader, 'a dataloader with a pipeline')
        self._key = 'train_dataloader.dataset'
        if folder is None:
            config = self._source = _training_images(cfg)
        else:
            self._key = 'argument: images'
            config = dict(type='UnlabelledImages', folder=str(folder))
            config['pipeline'] = inference_pipeline(cfg)
            self._source = facts_of_images(folder)
        with DATASETS.switch_scope_and_registry(cfg.get('default_scope')):
            self._items = DATASETS.build(config)
        check(len(self._items), self._key, 0, 'images to fit the maps on')
        order = np.random.default_rng(seed).permutation(len(self._items))
        self._order: list[int] = order.tolist()
        self._chosen = sorted(self._order)

    def draw(self, num_images: int, skip: int = 0) -> 'ImageBatches':
        """Return the batches of some of the images, or of all if there are fewer.

        ``skip`` is the number of images that an earlier draw took, for disjoint sets.
        If too few remain, the same images are drawn as with 0.
        """
        check(is_whole(num_images, 1), 'argument: num_images', num_images, '1 or more')
        first = skip if len(self._order) >= skip + num_images // 2 else 0
        drawn = copy(self)
        drawn._chosen = sorted(self._order[first : first + num_images])
        return drawn

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def are_all(self) -> bool:
        """Whether there are no other images."""
        return len(self._chosen) == len(self._items)

    @property
    def digest(self) -> str:
        """Digest of the data set's config, or of the folder, and of the images' files.

        Names, sizes and modification times stand for the content of files.
        """
        drawn = [file_facts(path) for path in map(self._path, self._chosen) if path]
        parts = self._source, drawn
        return digest([json.dumps(parts, default=str, sort_keys=True)])

    def __iter__(self) -> Iterator[Tensor]:
        device = next(self.model.parameters()).device
        places = np.random.default_rng(self._seed)
        items: list[dict] = []
        for i in self._chosen:
            item = self._read(i)
            full = len(items) == MAX_BATCH
            if items and (full or item['inputs'].shape != items[-1]['inputs'].shape):
                yield self._preprocess(items, places).to(device)
                items = []
            items.append(item)
        yield self._preprocess(items, places).to(device)

    def _read(self, i: int) -> dict:
        try:
            return self._items[i]
        except (AssertionError, OSError) as error:
            expected = f'images that can be read ({error})'
            raise refusal(self._key, self._path(i), expected) from error

    def _path(self, i: int) -> str | None:
        """Return the path of an image, None if it is not read from a file."""
        if isinstance(self._items, BaseDataset | ConcatDataset):
            return self._items.get_data_info(i).get('img_path')
        return None

    def _preprocess(self, items: list[dict], places: np.random.Generator) -> Tensor:
        batch = pseudo_collate(items)
        images = self.model.data_preprocessor(batch, False)['inputs']
        for axis, side in enumerate(window_of(self.model) or (), start=2):
            free = max(images.shape[axis] - side, 0)
            side = images.shape[axis] - free
            images = images.narrow(axis, int(places.integers(free + 1)), side)
        return images


@DATASETS.register_module()
class UnlabelledImages(BaseDataset):
    """Images of a folder, searched recursively."""

    def __init__(self, folder: str | os.PathLike, **kwargs) -> None:
        self.folder = folder
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        files = image_files(self.folder)
        return [dict(img_path=file, img_id=i) for i, file in enumerate(files)]


def image_files(folder: str | os.PathLike) -> list[str]:
    """Return the sorted paths of all images below a folder."""
    files = sorted(map(str, find_images(Path(folder))))
    expected = f'a folder with images ({", ".join(SUFFIXES)})'
    check(files, 'argument: images', str(folder), expected)
    return files


def facts_of_images(folder: str | os.PathLike) -> dict[str, list[int]]:
    """Return sizes and modification times of all images below a folder, by name."""
    return {os.path.relpath(f, folder): file_facts(f) for f in image_files(folder)}


def _training_images(cfg: Config) -> dict:
    """Return the dataset config of the training images, with the test pipeline."""
    loader = cfg.get('train_dataloader')
    expected = 'a dataloader, or a folder of unlabelled images (argument: images)'
    check(loader, 'train_dataloader', loader, expected)
    pipeline = innermost(cfg.test_dataloader.dataset).pipeline
    parts = deepcopy([*map(dict, innermost_parts(loader.dataset))])
    for part in parts:
        part['pipeline'] = deepcopy(pipeline)
    if len(parts) == 1:
        return parts[0]
    # Classes and colours may differ: only images are read.
    ignored = loader.dataset.get('ignore_keys') or ['classes', 'palette']
    return dict(type='ConcatDataset', datasets=parts, ignore_keys=ignored)
