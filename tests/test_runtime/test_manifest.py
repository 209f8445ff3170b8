import json

import pytest
from manifests import MANIFEST

from snnet_mm.runtime import read_manifest


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('{', 'cannot be read: '),
        ('[' * 10**5, 'cannot be read: '),
        ('[]', 'version=None is invalid: expected 7'),
        (json.dumps(MANIFEST | dict(version=2)), 'version=2 is invalid: expected 7'),
        ('{"version": 7, "task": "depth"}', r"\['input', 'caller', .* are missing"),
    ],
)
def test_read_manifest_names_file_and_fault(tmp_path, text, words):
    path = tmp_path / 'manifest.json'
    path.write_text(json.dumps(MANIFEST))
    assert read_manifest(tmp_path) == MANIFEST
    path.write_text(text)
    with pytest.raises(ValueError, match=rf'manifest\.json.* {words}'):
        read_manifest(tmp_path)
