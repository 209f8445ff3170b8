"""Manifests with a fault: the file, the key and the value are in the error."""

import copy
import json
import math
from contextlib import suppress
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from manifests import MANIFEST

from snnet_mm.runtime import read_manifest
from snnet_mm.runtime.manifest import check_manifest
from snnet_mm.runtime.steps import Steps


def changed(path, value):
    tree = copy.deepcopy(MANIFEST)
    *above, last = path
    holder = reduce(getitem, above, tree)
    if value is KeyError:
        del holder[last]
    else:
        holder[last] = value
    return tree


def write(folder, data):
    text = data if isinstance(data, str) else json.dumps(data)
    (folder / 'manifest.json').write_text(text)
    return folder


def test_a_right_one_is_read(tmp_path):
    assert read_manifest(write(tmp_path, MANIFEST)) == MANIFEST


BEFORE, FILE = ('caller', 'before'), ('stitches', 1, 'files', 0)


@pytest.mark.parametrize(
    ('path', 'value', 'words'),
    [
        (['version'], 2, 'version=2; allowed: 4; export the stitches again'),
        (['stitches'], KeyError, 'stitches=None; allowed: a value; the key is missing'),
        (['stitches'], [], 'stitches=[]; allowed: one stitch or more'),
        (['stitches', 1, 'id'], 0, 'stitches[1].id=0; allowed: each id once'),
        (['stitches', 0, 'flops'], math.nan, 'stitches[0].flops=nan; allowed: a posit'),
        (['stitches', 0, 'flops'], -5, 'stitches[0].flops=-5; allowed: a positive'),
        (['stitches', 0, 'flops'], '1', "stitches[0].flops='1'; allowed: a positive"),
        (['stitches', 0, 'flops'], 10**400, 'stitches[0].flops=1000000'),
        (['stitches', 0, 'files'], [], 'stitches[0].files=[]; allowed: one file or'),
        (['stitches', 0, 'segments', 0, 2], 3, "[0].segments=['fast', 0, 3]; allowed"),
        (['stitches', 0, 'metrics', 'mIoU'], math.inf, 'metrics.mIoU=inf; allowed: a '),
        ([*FILE, 'name'], 5, 'files[0].name=5; allowed: the name of a file'),
        ([*FILE, 'name'], 'stitch_0_32x64_fp32.onnx', 'allowed: stitch_7 or stitch_7_'),
        ([*FILE, 'name'], '../../.ssh/id_ed25519', "name='../../.ssh/id_ed25519'; all"),
        ([*FILE, 'name'], '/etc/passwd', "name='/etc/passwd'; allowed: the name of a"),
        ([*FILE, 'weights', 'name'], '..', "weights.name='..'; allowed: the name of a"),
        ([*FILE, 'weights'], None, 'files[0].weights=None; allowed: those that'),
        ([*FILE, 'sha256'], 'A', "sha256='A'; allowed: a SHA-256 digest"),
        (['weights', 'name'], 'a\\..\\b', "weights.name='a\\\\..\\\\b'; allowed: the "),
        (['caller'], KeyError, 'caller=None; allowed: a value'),
        (['input', 'channels'], KeyError, 'input.channels=None; allowed: a value'),
        (['input', 'channels'], 'RBG', "input.channels='RBG'; allowed: 'RGB' or 'BGR'"),
        (['input', 'channels'], 'BGR', "channels='RGB'; allowed: 'BGR', as input.chan"),
        (['input', 'shape', 2], 0, 'input.shape[2]=0; allowed: 1 to 16384 pixels'),
        (['input', 'shape', 2], 10**9, 'shape[2]=1000000000; allowed: 1 to 16384 pix'),
        (['input', 'shape', 2], 16, 'windows.size=[32, 64]; allowed: [16, 64], as inp'),
        ([*BEFORE, 2, 'order'], 'RBG', "before[2].order='RBG'; allowed: 'RGB' or 'BGR"),
        ([*BEFORE, 4, 'stride', 1], 0, 'before[4].stride[1]=0; allowed: 1 to 16384'),
        ([*BEFORE, 4, 'stride', 1], 65, 'stride=[32, 65]; allowed: up to [32, 64]'),
        ([*BEFORE, 1, 'step'], 'windows', "[1].step='windows'; allowed: each step onc"),
        (['caller', 'after'], [], 'caller.after=(); allowed: '),
        (['task'], 'depth', "caller.after=('resize', 'argmax'); allowed: ('resize',)"),
        (['ranked_by'], 'mIoU', "ranked_by='mIoU'; allowed: an object"),
    ],
)  # fmt: skip
def test_faults(tmp_path, path, value, words):
    with pytest.raises(ValueError) as error:
        read_manifest(write(tmp_path, changed(path, value)))
    assert str(error.value).startswith(f'{tmp_path}/manifest.json: ')
    assert words in str(error.value)


@pytest.mark.parametrize('text', ['', '{', '[]', '3', '{"version": 4}', '[' * 10**5])
def test_what_is_no_manifest(tmp_path, text):
    with pytest.raises(ValueError, match=r'manifest\.json'):
        read_manifest(write(tmp_path, text))


def places(tree, path=()):
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items if isinstance(tree, dict | list) else ():
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


def test_every_other_value_is_used_or_named(tmp_path):
    """No place of a manifest with an odd value in it raises anything else."""
    path, refused, used = tmp_path / 'manifest.json', [], 0
    image = np.zeros((40, 70, 3), np.uint8)
    maps = [np.zeros((1, 6, 32, 64), np.float32)]
    for place in places(MANIFEST):
        for value in (KeyError, None, True, -1, math.nan, 1e99, 'x', [], {}, [[]]):
            manifest = changed(place, value)
            try:
                check_manifest(manifest, path)
            except ValueError as error:
                refused.append(str(error))
                continue
            with suppress(ValueError):  # steps that are left to the caller
                (found,) = Steps(manifest).predict(lambda _: maps, [image])
                assert found.shape == image.shape[:2]
                used += 1
    assert len(refused) > 1000
    for words in refused:
        assert words.startswith(f'{path}: ')
        assert '; allowed: ' in words
    assert used > 50
