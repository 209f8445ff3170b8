"""Preprocessed images that chains are chosen and fitted on; labels are not read."""

import os
from collections.abc import Iterator
from copy import deepcopy

import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DATASETS, TRANSFORMS
from torch import Tensor, nn

from snnet_mm.deploy.single import inference_pipeline, innermost
from snnet_mm.utils import check, dicts_in, is_whole

MAX_BATCH = 8
SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


class ImageBatches:
    """Batches ``(B, 3, H, W)`` of images, drawn once and read anew in every iteration.

    Images of the training set, or of a folder, pass the test pipeline and the model's
    data preprocessor. Neighbours of equal size share a batch.

    Args:
        cfg: Config of the model.
        model: The mm model, whose data preprocessor is used.
        num_images: Number of images; all where there are fewer.
        folder: Folder of images, searched recursively; None for the training set.
        seed: Seed of the draw.

    Raises:
        ValueError: If there is no image or no test pipeline.
    """

    def __init__(
        self,
        cfg: Config,
        model: nn.Module,
        num_images: int,
        folder: str | os.PathLike | None = None,
        seed: int = 0,
    ) -> None:
        check(is_whole(num_images, 1), '--num-images', num_images, '1 or more')
        self.model = model
        loader = cfg.get('test_dataloader')
        check(loader, 'test_dataloader', loader, 'one, whose pipeline images pass')
        if folder is None:
            self._items = _training_images(cfg)
        else:
            self._items = _FolderOfImages(cfg, folder)
        chosen = np.random.default_rng(seed).permutation(len(self._items))[:num_images]
        self._chosen = sorted(chosen.tolist())

    def __len__(self) -> int:
        return len(self._chosen)

    def __iter__(self) -> Iterator[Tensor]:
        device = next(self.model.parameters()).device
        items: list[dict] = []
        for i in self._chosen:
            item = self._items[i]
            full = len(items) == MAX_BATCH
            if items and (full or item['inputs'].shape != items[-1]['inputs'].shape):
                yield self._preprocess(items).to(device)
                items = []
            items.append(item)
        yield self._preprocess(items).to(device)

    def _preprocess(self, items: list[dict]) -> Tensor:
        return self.model.data_preprocessor(pseudo_collate(items), False)['inputs']


class _FolderOfImages:
    """Images of a folder after the test pipeline."""

    def __init__(self, cfg: Config, folder: str | os.PathLike) -> None:
        found = (
            os.path.join(root, name)
            for root, _, names in os.walk(folder)
            for name in names
            if name.lower().endswith(SUFFIXES)
        )
        self._files = sorted(found)
        wanted = f'a folder with images ({", ".join(SUFFIXES)})'
        check(self._files, '--images', str(folder), wanted)
        with TRANSFORMS.switch_scope_and_registry(cfg.get('default_scope')):
            self._pipeline = Compose(inference_pipeline(cfg))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> dict:
        return self._pipeline(dict(img_path=self._files[i], img_id=i))


def _training_images(cfg: Config):
    """Build the training set with the test pipeline, without its wrappers."""
    loader = cfg.get('train_dataloader')
    wanted = 'one, or unlabelled images (option: --images FOLDER)'
    check(loader, 'train_dataloader', loader, wanted)
    config = deepcopy(dict(innermost(loader.dataset)))
    config['pipeline'] = deepcopy(innermost(cfg.test_dataloader.dataset).pipeline)
    config.update(test_mode=True, serialize_data=True)
    if not any('test_mode' in part for part in dicts_in(dict(loader.dataset))):
        config = _without_unknown(config, 'test_mode', 'serialize_data')
    with DATASETS.switch_scope_and_registry(cfg.get('default_scope')):
        data = DATASETS.build(config)
    check(len(data), 'train_dataloader.dataset', 0, 'images to fit the maps on')
    return data


def _without_unknown(config: dict, *keys: str) -> dict:
    """Leave out settings that a data set outside mmengine's family does not have."""
    from inspect import signature

    kind = DATASETS.get(config['type']) if isinstance(config['type'], str) else config['type']
    names = {p for c in kind.__mro__ for p in signature(c.__init__).parameters}
    return {k: v for k, v in config.items() if k not in keys or k in names}
