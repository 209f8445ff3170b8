"""Packaging of snnet_mm; the requirements live in ``requirements/``."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
KINDS = dict(configs=('py', 'yml'), tools=('py', 'sh', 'html', 'js'))
SHIPPED = [(folder, kind) for folder, kinds in KINDS.items() for kind in kinds]


def get_version() -> str:
    """Read ``__version__`` without importing the package, which needs torch."""
    namespace: dict = {}
    exec((ROOT / 'snnet_mm' / 'version.py').read_text(encoding='utf-8'), namespace)
    return namespace['__version__']


def parse_requirements(name: str) -> list[str]:
    """Return the requirements in ``requirements/<name>.txt``, without comments."""
    text = (ROOT / 'requirements' / f'{name}.txt').read_text(encoding='utf-8')
    lines = (line.split('#')[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


runtime, mminstall, optional, onnx, llama, ray, tests = map(
    parse_requirements,
    ('runtime', 'mminstall', 'optional', 'onnx', 'llama', 'ray', 'tests'),
)

setup(
    name='snnet_mm',
    version=get_version(),
    description='Stitchable neural networks for many compute budgets, on OpenMMLab',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author='snnet_mm contributors',
    license='Apache-2.0',
    license_files=['LICENSE'],
    keywords='computer vision, stitchable neural networks, OpenMMLab',
    packages=find_packages(include=['snnet_mm', 'snnet_mm.*']),
    # .mim holds links to configs and tools: mmengine looks for them there, in this
    # folder (pip install -e .) and in what is installed from it.
    package_data={
        'snnet_mm': [
            'py.typed',
            *(f'.mim/{folder}/**/*.{kind}' for folder, kind in SHIPPED),
        ]
    },
    exclude_package_data={'snnet_mm': ['.mim/tools/research/*']},
    entry_points={'console_scripts': ['snnet = snnet_mm.cli:main']},
    python_requires='>=3.10,<3.13',
    # torch and the OpenMMLab packages are left out: a cluster has its own torch, and
    # perhaps an mmcv compiled for it. The extras and requirements/build.txt name them.
    install_requires=runtime,
    extras_require={
        'all': runtime + mminstall + optional + onnx,
        'llama': llama,
        'mminstall': mminstall,
        'onnx': onnx,
        'optional': optional,
        'ray': onnx + ray,
        'tests': tests,
    },
    zip_safe=False,
)
