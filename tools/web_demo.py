"""Write a page that runs a bundle in the browser: ``web_demo.py BUNDLE --out site``.

Any static server can serve the folder: ``python -m http.server --directory site``.
"""

import argparse
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from snnet_mm.runtime import read_manifest
from snnet_mm.runtime.bundle import check_whole
from snnet_mm.runtime.manifest import MANIFEST
from snnet_mm.utils import ToolParser, check, check_writable, refusal, run_command

PAGE = Path(__file__).with_name('web')
# Steps of `caller.before` that the page runs, or says that it does not.
RESIZE = dict(step='resize', backend='cv2', interpolation='bilinear')
OTHER_STEPS = 'windows', 'flip_average', 'channels', 'pad', 'batch'
PACKAGE = 'onnxruntime-web@1.30.0'
# Files in its dist folder, for the CPU and for WebGPU.
SCRIPTS = (
    'ort.wasm.min.mjs',
    'ort-wasm-simd-threaded.mjs',
    'ort-wasm-simd-threaded.wasm',
    'ort.webgpu.min.mjs',
    'ort-wasm-simd-threaded.asyncify.mjs',
    'ort-wasm-simd-threaded.asyncify.wasm',
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description='Write a page that runs a bundle in the browser')
    add = parser.add_argument
    add('bundle', type=Path, help='a bundle of tools/export_stitch.py')
    add('--out', type=Path, required=True, help='output folder')
    what = f'folder of the npm package (default: npm pack {PACKAGE})'
    add('--onnxruntime-web', type=Path, help=what)
    add('--images', type=Path, nargs='+', default=[], help='example images to offer')
    return parser.parse_args()


@contextmanager
def scripts_of(folder: Path | None) -> Iterator[Path]:
    """Yield the folder of the scripts; without one, npm downloads the package."""
    with TemporaryDirectory() as packed:
        if folder is None:
            command = ['npm', 'pack', PACKAGE, '--silent', '--pack-destination', packed]
            try:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError) as error:
                expected = f'the unpacked npm package {PACKAGE}, as npm pack failed'
                raise refusal('--onnxruntime-web', None, expected) from error
            (archive,) = Path(packed).glob('*.tgz')
            with tarfile.open(archive) as file:
                file.extractall(packed, filter='data')
            folder = Path(packed, 'package')
        folder = folder / 'dist' if (folder / 'dist').is_dir() else folder
        missing = [name for name in SCRIPTS if not (folder / name).is_file()]
        expected = f'a folder with {", ".join(missing)}'
        check(not missing, '--onnxruntime-web', str(folder), expected)
        yield folder


def write_page(args: argparse.Namespace, scripts: Path) -> None:
    """Write the page with its bundle, images and scripts to the output folder."""
    manifest = read_manifest(args.bundle)
    channels = manifest['input']['shape'][1]
    found = f'{args.bundle}, of {channels} channels'
    check(
        channels == 3,
        'argument: bundle',
        found,
        'a bundle for images of three channels',
    )
    found = f'{args.bundle}, of {manifest["task"]}'
    expected = 'a bundle of a segmentation model'
    check(manifest['task'] == 'segmentation', 'argument: bundle', found, expected)
    before = manifest['caller']['before']
    of_image = [step for step in before if step['step'] not in OTHER_STEPS]
    right = all(RESIZE.items() <= step.items() for step in of_image)
    right &= len(of_image) < 2
    found = f'{args.bundle}, with {", ".join(step["step"] for step in of_image)}'
    expected = 'a bundle whose test pipeline at most resizes once, bilinearly with cv2'
    check(right, 'argument: bundle', found, expected)
    files = [file for stitch in manifest['stitches'] for file in stitch['files']]
    files = [file for file in files if file['format'] == 'onnx']
    check(files, 'argument: bundle', str(args.bundle), 'a bundle with ONNX graphs')
    files += [manifest['weights']] if manifest['weights'] else []
    paths = [check_whole(args.bundle, file) for file in files]
    images = [path.name for path in args.images]
    check(len({*images}) == len(images), '--images', images, 'different names')
    for path in args.images:
        check(path.is_file(), '--images', str(path), 'image files that exist')
    copies = {f'bundle/{path.name}': path for path in (*paths, args.bundle / MANIFEST)}
    copies |= {f'ort/{name}': scripts / name for name in SCRIPTS}
    copies |= {f'images/{path.name}': path for path in args.images}
    copies |= {name: PAGE / name for name in ('page.js', 'worker.js')}
    out = check_writable(args.out, 'option: --out')
    for name, path in copies.items():
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, out / name)
    settings = json.dumps(dict(images=images))
    page = (PAGE / 'index.html').read_text(encoding='utf-8')
    page = page.replace('SETTINGS', settings.replace('<', '\\u003c'))
    (out / 'index.html').write_text(page, encoding='utf-8')


def main() -> None:
    args = parse_args()
    with scripts_of(args.onnxruntime_web) as scripts:
        write_page(args, scripts)
    print(f'Wrote {args.out}; python -m http.server --directory {args.out} serves it')


if __name__ == '__main__':
    run_command(main)
