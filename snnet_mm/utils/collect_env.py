"""The environment of a bug report: ``python -m snnet_mm.utils.collect_env``."""

from importlib import import_module, metadata

from mmengine.utils.dl_utils import collect_env as collect_mmengine_env

PACKAGES = ('snnet_mm', 'mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'timm')


def collect_env() -> dict[str, str]:
    """Collect what mmengine does, packages with their distributions, compiled ops."""
    env = {key: str(value) for key, value in collect_mmengine_env().items()}
    distributions = metadata.packages_distributions()
    for name in PACKAGES:
        sources = sorted(set(distributions.get(name, ['no distribution'])))
        env[name] = f'{_imported(name, "__version__")} ({", ".join(sources)})'
        if len(sources) > 1:
            # pip sees them as unrelated, so that each overwrites files of the other.
            env[name] += (
                '; WARNING: their files are mixed. To fix it: pip uninstall -y '
                f'{" ".join(sources)}, and install one of them again'
            )
    env["mmcv's compiled ops"] = _imported('mmcv._ext', '__name__')
    return env


def _imported(module: str, attribute: str) -> str:
    """Return an attribute of a module, or why it cannot be imported."""
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # a mix of two packages fails in any way
        return f'cannot be imported: {error}'


if __name__ == '__main__':
    for name, value in collect_env().items():
        print(f'{name}: {value}')
