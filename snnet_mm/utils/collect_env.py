"""What a bug report should hold: ``python -m snnet_mm.utils.collect_env``."""

from __future__ import annotations

from importlib import import_module, metadata

from mmengine.utils.dl_utils import collect_env as collect_mmengine_env

# Import name -> distributions that bring it; the last one is the maintained one.
DISTRIBUTIONS = dict(
    mmengine=('mmengine', 'mmengine-lite', 'onedl-mmengine'),
    mmcv=('mmcv', 'mmcv-full', 'mmcv-lite', 'onedl-mmcv'),
    mmseg=('mmsegmentation', 'onedl-mmsegmentation'),
    mmdet=('mmdet', 'onedl-mmdetection'),
    mmpretrain=('mmpretrain', 'onedl-mmpretrain'),
)
# Of mmengine's list: noise, and what is listed here in another way.
LEFT_OUT = {
    'MMEngine',
    'MUSA available',
    'PyTorch compiling details',
    'numpy_random_seed',
}


def collect_env() -> dict[str, str]:
    """Versions, compiler and GPUs of this environment, and whether mmcv has its ops."""
    env = {'snnet_mm': _imported_version('snnet_mm')}
    env |= {k: str(v) for k, v in collect_mmengine_env().items() if k not in LEFT_OUT}
    for name in DISTRIBUTIONS:
        sources = ', '.join(_installed(name)) or 'no distribution'
        env[name] = f'{_imported_version(name)} ({sources})'
    env['timm'] = _imported_version('timm')
    env["mmcv's ops"] = _ops()
    return env


def collision_warnings() -> list[str]:
    """One sentence per import name that several installed distributions bring.

    pip sees them as unrelated, so that each overwrites files of the other.
    """
    warnings = []
    for name in DISTRIBUTIONS:
        installed = _installed(name)
        if len(installed) < 2:
            continue
        imported = _imported_version(name)
        winners = [d for d, version in installed.items() if version == imported]
        wins = winners[0] if len(winners) == 1 else 'files of unclear origin'
        both = ' and '.join(f'{d} {version}' for d, version in installed.items())
        warnings.append(
            f'{both} are installed together, and each is imported as {name}: they '
            f"overwrote each other's files. 'import {name}' gives {imported}, that is "
            f'{wins}. To fix it: pip uninstall -y {" ".join(installed)} && pip '
            f'install -c requirements/constraints.txt {DISTRIBUTIONS[name][-1]}'
        )
    return warnings


def _installed(name: str) -> dict[str, str]:
    """Versions of the installed distributions that bring an import name."""
    versions = {}
    for distribution in DISTRIBUTIONS[name]:
        try:
            versions[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _imported_version(name: str) -> str:
    """The version that an import gives, or why it gives none."""
    try:
        return import_module(name).__version__
    except ModuleNotFoundError as error:
        return 'not installed' if error.name == name else f'broken: {error}'
    except Exception as error:  # a mix of two packages fails in any way
        return f'broken: {type(error).__name__}: {error}'


def _ops() -> str:
    try:
        import_module('mmcv._ext')
    except ImportError as error:
        return f'not compiled ({error})'
    return 'compiled'


def main() -> None:
    """Print everything, warnings last."""
    for name, value in collect_env().items():
        print(f'{name}: {value}')
    for warning in collision_warnings():
        print(f'\nWARNING: {warning}')


if __name__ == '__main__':
    main()
