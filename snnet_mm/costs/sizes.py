"""Input sizes of models, and images of these sizes."""

from collections.abc import Sequence

from mmengine.logging import print_log
from mmengine.model import BaseTTAModel
from torch import Tensor, nn
from torch.utils.data import DataLoader

from snnet_mm.anchors import image_channels
from snnet_mm.models import StitchedBackbone, unwrapped
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, is_whole, isolated_rng

Size = tuple[int, int]  # height and width in pixels
SIZE = 'height and width of the images, in pixels (option: --shape)'


def size_name(size: Size) -> str:
    """Format a size for options and folder names, e.g. ``'168x238'``."""
    return '{}x{}'.format(*size)


def is_size(value: object) -> bool:
    """Return whether a value is a height and a width in whole pixels."""
    pair = isinstance(value, Sequence) and len(value) == 2
    return pair and all(is_whole(side, 1) for side in value)


def window_of(model: nn.Module) -> Size | None:
    """Return the size of a segmentor's sliding windows, or None if it has none."""
    settings = getattr(model, 'test_cfg', None) or {}
    modes = ['slide', 'slide_flip']
    if task_of(model).name == 'depth' and not getattr(model, 'mirrors_images', False):
        modes.remove('slide')  # which mmseg's own depth models ignore
    return tuple(settings['crop_size']) if settings.get('mode') in modes else None


def check_sizes(
    model: nn.Module, sizes: Sequence[Sequence[int]], key: str
) -> tuple[Size, ...]:
    """Validate and return sizes."""
    right = isinstance(sizes, Sequence) and all(map(is_size, sizes))
    found = tuple(map(tuple, sizes)) if right else ()
    once = right and len({*found}) == len(found)
    check(once, key, sizes, 'different pairs of height and width in pixels')
    expected = 'no sizes: detectors and language models are tested at one size'
    check(not found or not task_of(model).unsized, key, sizes, expected)
    return found


def preprocessed_size(model: nn.Module) -> Size:
    """Return the height and width to which a model's data preprocessor pads batches.

    mmdet sets them in ``batch_augments``. mmpretrain pads nothing, so the fallback for
    classifiers is the input size of the slow anchor.
    """
    preprocessor = getattr(unwrapped(model), 'data_preprocessor', None) or nn.Module()
    sizes = [getattr(part, 'size', None) for part in preprocessor.modules()]
    backbones = (m for m in model.modules() if isinstance(m, StitchedBackbone))
    sizes += [b.anchors[-1].input_size for b in backbones if b.out == 'end']
    size = next((size for size in sizes if size is not None), None)
    check(size is not None, 'input_size, model.data_preprocessor.size', size, SIZE)
    return tuple(size) if isinstance(size, Sequence) else size


def size_of_images(model: nn.Module, loader: DataLoader, seed: int) -> Size:
    """Return :func:`preprocessed_size`, or the size of a loader's first image.

    The fallback is for detectors and some stock configs, whose image sizes vary.
    """
    try:
        return preprocessed_size(model)
    except ValueError:
        with isolated_rng(seed):
            batch = loader.collate_fn([loader.dataset[0]])
        if any(isinstance(part, BaseTTAModel) for part in model.modules()):
            batch = {key: views[0] for key, views in batch.items()}
        images = batch['inputs'][0]
        if isinstance(images, Tensor):
            images = unwrapped(model).data_preprocessor(batch, False)['inputs']
        if not isinstance(images, Tensor):  # several views of each image
            raise
    height, width = images.shape[-2:]
    words = 'that of the first image (config key: input_size)'
    print_log(f'Costs are counted at {height}x{width}, {words}', 'current')
    return height, width


def empty_images(
    model: nn.Module, input_size: Sequence[int] | None, batch: int
) -> Tensor:
    """Return images ``(B, C, H, W)`` of any content, on the weights' device and dtype.

    ``input_size`` is height and width in pixels, by default :func:`preprocessed_size`.
    If a module defines ``empty_inputs(batch, size)``, return its result instead.
    """
    size = input_size or preprocessed_size(model)
    check(is_size(size), 'input_size, model.data_preprocessor.size', size, SIZE)
    for module in model.modules():
        if hasattr(type(module), 'empty_inputs'):
            return module.empty_inputs(batch, size)
    channels = image_channels(unwrapped(model))
    return next(model.parameters()).new_zeros(batch, channels, *size)
