"""Manifests with a fault: the file, the key and the value are in the error."""

import copy
import json
import math
from functools import reduce
from operator import getitem

import pytest
from manifests import MANIFEST

from snnet_mm.runtime import read_manifest


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


FILE = ('stitches', 1, 'files', 0)


@pytest.mark.parametrize(
    ('path', 'value', 'words'),
    [
        (['version'], 2, 'version=2 is invalid'),
        (['stitches'], KeyError, 'stitches=None is invalid'),
        (['stitches', 0, 'flops'], math.nan, 'stitches[0].flops=nan is invalid'),
        (['stitches', 0, 'flops'], 10**400, 'stitches[0].flops=1000000'),
        (['stitches', 0, 'segments', 0, 2], 'a', "segments[0][2]='a' is invalid"),
        ([*FILE, 'name'], 5, 'files[0].name=5 is invalid'),
        ([*FILE, 'name'], '../../.ssh/id_ed25519', "name='../../.ssh/id_ed25519' is "),
        ([*FILE, 'name'], '/etc/passwd', "name='/etc/passwd' is invalid"),
        ([*FILE, 'weights', 'name'], '..', "weights.name='..' is invalid"),
        ([*FILE, 'sha256'], 'A', "sha256='A' is invalid"),
        (['weights', 'name'], 'a\\..\\b', "weights.name='a\\\\..\\\\b' is invalid"),
        (['input', 'channels'], 'RBG', "input.channels='RBG' is invalid"),
        (['input', 'shape', 2], 10**9, 'shape[2]=1000000000 is invalid'),
        (['ranked_by'], 'mIoU', "ranked_by='mIoU' is invalid"),
    ],
)  # fmt: skip
def test_faults(tmp_path, path, value, words):
    with pytest.raises(ValueError) as error:
        read_manifest(write(tmp_path, changed(path, value)))
    assert str(error.value).startswith(f'{tmp_path}/manifest.json: ')
    assert words in str(error.value)


@pytest.mark.parametrize('text', ['', '{', '[]', '3', '{"version": 6}', '[' * 10**5])
def test_what_is_no_manifest(tmp_path, text):
    with pytest.raises(ValueError, match=r'manifest\.json'):
        read_manifest(write(tmp_path, text))
