"""Print what reports of problems need, versions and devices: ``tools/info.py``."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from snnet_mm import __version__
from snnet_mm.utils import ToolParser, run_command

# Import name -> distributions that may provide it.
PACKAGES = dict(
    torch=('torch',),
    torchvision=('torchvision',),
    mmengine=('onedl-mmengine', 'mmengine'),
    mmcv=('onedl-mmcv', 'mmcv', 'mmcv-lite'),
    mmseg=('onedl-mmsegmentation', 'mmsegmentation'),
    mmdet=('onedl-mmdetection', 'mmdet'),
    mmpretrain=('onedl-mmpretrain', 'mmpretrain'),
    timm=('timm',),
    onnxruntime=('onnxruntime', 'onnxruntime-gpu'),
    ray=('ray',),
)


def main() -> None:
    ToolParser(description=__doc__).parse_args()
    width = max(map(len, PACKAGES))
    for name, value in {'snnet_mm': __version__, **versions(), **devices()}.items():
        print(f'{name:{width}}  {value}')


def versions() -> dict[str, str]:
    """Return the installed distribution of every package, without importing it."""
    found = dict(python=sys.version.split()[0])
    for name, distributions in PACKAGES.items():
        found[name] = ', '.join(filter(None, map(installed, distributions))) or 'none'
    if find_spec('mmcv') is not None:
        compiled = find_spec('mmcv._ext') is not None
        found['operators'] = 'compiled' if compiled else "torchvision's, for mmdet"
    return found


def installed(distribution: str) -> str | None:
    """Return a distribution and its version, or None if it is not installed."""
    try:
        return f'{distribution} {version(distribution)}'
    except PackageNotFoundError:
        return None


def devices() -> dict[str, object]:
    """Return the processor, the GPUs that torch can use, and why there are none."""
    if find_spec('torch') is None:
        return {}
    import torch

    from snnet_mm.utils.machine import devices, machine

    processor, *gpus = devices()
    cuda = f'torch is built for CUDA {torch.version.cuda}'
    return dict(
        processor=f'{processor}, {machine()["cores"]} cores',
        gpus=', '.join(gpus) or f'none that torch can use ({cuda})',
    )


if __name__ == '__main__':
    run_command(main)
