"""Errors that name the test image that cannot be loaded."""

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import Dataset


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
    """Wraps a test pipeline so that its errors name the image.

    Args:
        pipeline: The wrapped pipeline.
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
            'key: test_dataloader.dataset)'
        ) from cause


class BrokenImagesHook(Hook):
    """Makes a test name the image that it fails to load."""

    def before_test(self, runner: Runner) -> None:
        name_broken_images(runner.test_loop.dataloader.dataset)


def name_broken_images(dataset: Dataset) -> None:
    """Make a data set, and those inside of it, name images that fail to load."""
    for part in (*getattr(dataset, 'datasets', ()), getattr(dataset, 'dataset', None)):
        if part is not None:
            name_broken_images(part)
    pipeline = getattr(dataset, 'pipeline', None)
    if pipeline is not None and not isinstance(pipeline, NamingPipeline):
        dataset.pipeline = NamingPipeline(pipeline)
