"""Images of a test that cannot be loaded: named, or skipped."""

from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader, Dataset

from snnet_mm.datasets import subset
from snnet_mm.tasks import check_partial
from snnet_mm.utils import check


class BrokenImageError(ValueError):
    """Raised for an image that a pipeline cannot load.

    Args:
        text: The message, or the traceback of a data loader's worker that ends with it.
    """

    def __init__(self, text: str) -> None:
        message = text.strip().rpartition(f'{BrokenImageError.__name__}: ')[2]
        super().__init__(message)
        if message != text:
            self.__cause__ = RuntimeError(text)


class NamingPipeline:
    """A pipeline of test data whose errors name the image.

    Args:
        pipeline: The pipeline.
    """

    def __init__(self, pipeline) -> None:
        self.pipeline = pipeline

    def __call__(self, info: dict) -> dict:
        reason, cause = 'its pipeline gives None', None
        try:
            if (data := self.pipeline(info)) is not None:
                return data
        except Exception as error:
            first = str(error).strip().partition('\n')[0]
            reason, cause = f'{type(error).__name__} {first}'.strip(), error
        raise BrokenImageError(
            f'{info.get("img_path", "an image")} cannot be loaded: {reason} (config '
            'key: test_dataloader.dataset; option: --skip-broken)'
        ) from cause


class BrokenImagesHook(Hook):
    """Names the image that ends a test, or skips all that would.

    Args:
        skip: Whether to load all images once before the test, and to leave out those
            that cannot be loaded.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip

    def before_test(self, runner: Runner) -> None:
        loop = runner.test_loop
        _name_broken_images(loop.dataloader.dataset)
        if not self.skip:
            return
        dataset = loop.dataloader.dataset
        broken = find_broken_images(loop.dataloader)
        number, total = len(broken), len(dataset)
        lines = [f'{number} of {total} images are skipped (--skip-broken)']
        runner.logger.warning('\n'.join([*lines, *broken.values()]))
        if broken:
            check(number < total, 'test_dataloader.dataset', number, 'not all broken')
            check_partial(loop.evaluator, '--skip-broken')
            whole = [i for i in range(total) if i not in broken]
            loop.dataloader = subset(loop.dataloader, whole)


def find_broken_images(dataloader: DataLoader) -> dict[int, str]:
    """Return the indices of images that cannot be loaded, and why, on all ranks."""
    probe, workers = _Probe(dataloader.dataset), dataloader.num_workers
    own = range(get_rank(), len(probe), get_world_size())
    found = DataLoader(probe, None, sampler=own, num_workers=workers, collate_fn=None)
    parts = all_gather_object([pair for pair in found if pair])
    return dict(sorted(pair for part in parts for pair in part))


class _Probe(Dataset):
    """Tells why an image cannot be loaded, and nothing of others."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[int, str] | tuple[()]:
        try:
            self.dataset[index]
        except BrokenImageError as error:
            return index, str(error)
        return ()


def _name_broken_images(dataset: Dataset) -> None:
    for part in (*getattr(dataset, 'datasets', ()), getattr(dataset, 'dataset', None)):
        if part is not None:
            _name_broken_images(part)
    pipeline = getattr(dataset, 'pipeline', None)
    if pipeline is not None and not isinstance(pipeline, NamingPipeline):
        dataset.pipeline = NamingPipeline(pipeline)
