"""A handwritten manifest, and a bundle of it whose graphs are never opened."""

import copy
import json
import re

from snnet_mm.runtime.bundle import describe_file, files_of, name_by_content

WEIGHTS = dict(name='weights.safetensors', bytes=9, sha256='0' * 64)
VERIFIED = dict(on='val', images=3, metric='mIoU', value=40.5, pytorch=41.0, lost=0.5)
VERIFIED |= dict(interval=[-0.6, 0.1], ms=3.5, pytorch_ms=7.0, metrics=dict(mIoU=40.5))


def plain(name):
    """Return the name of an exported file without its content digest."""
    return re.sub(r'-[0-9a-f]{8}(?=\.\w+$)', '', name)


def path_of(folder, name):
    """Return the path of an exported file by its name without the digest."""
    (path,) = (path for path in folder.iterdir() if plain(path.name) == name)
    return path


def open_exported(folder, file):
    """Open an exported file of the manifest in its runtime."""
    from snnet_mm.exports import FORMATS  # with torch, which bundles do not need

    return FORMATS[file['format']].load(folder / file['name'])


def stitch_of(i, segments):
    file = dict(WEIGHTS, name=f'stitch_{i}_32x64_fp32.onnx', format='onnx')
    file |= dict(precision='fp32', max_difference=1e-6)
    file |= dict(weights=WEIGHTS, verified=VERIFIED)
    about = dict(id=i, kind='FS', route='a route', flops=100 + i, params=10)
    about |= dict(segments=segments, branches=None, metrics=dict(mIoU=41))
    return about | dict(files=[file], left_out=[])


MANIFEST = dict(
    version=7,
    task='segmentation',
    input=dict(name='images', shape=['batch', 3, 32, 64], channels='RGB'),
    caller=dict(before=[dict(step='channels', order='RGB')], after=[]),
    classes=['a', 'b'],
    palette=[[0, 1, 2]],
    ranked_by=dict(metric='mIoU', higher_is_better=True),
    compared_on='2 test images',
    machine=dict(processor='A processor', threads=3),
    largest_flops=107,
    anchors=[dict(name='fast', depth=2), dict(name='slow', depth=3)],
    stitches=[
        stitch_of(0, [['fast', 0, 2]]),
        stitch_of(7, [['fast', 0, 1], ['slow', 2, 3]]),
    ],
    weights=WEIGHTS,
)


def write_bundle(folder):
    """Write a folder whose files have the sizes and digests of its manifest."""
    manifest = copy.deepcopy(MANIFEST)
    files = *files_of(manifest), manifest['weights']
    for file in {id(file): file for file in files}.values():
        path = folder / file['name']
        path.write_text(f'{folder.name} {path.name}')
        file |= describe_file(path)
        file['name'] = name_by_content(path.name, file['sha256'])
        path.rename(folder / file['name'])
    (folder / 'manifest.json').write_text(json.dumps(manifest))
    return manifest
