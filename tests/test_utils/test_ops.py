import sys

import pytest

from snnet_mm.utils import check_ops_for


def test_an_mmcv_without_ops_is_refused_where_they_are_needed(monkeypatch):
    # None makes the import fail as a missing module does.
    monkeypatch.setitem(sys.modules, 'mmcv._ext', None)
    check_ops_for(dict(default_scope='mmseg'))
    check_ops_for({})
    with pytest.raises(ValueError, match='mmcv._ext.*`make test` builds .* pip wheel'):
        check_ops_for(dict(default_scope='mmdet'))
