import pytest
from torch import nn

from snnet_mm.costs import check_sizes


class BaseDetector(nn.Module):
    """A detector by its name, as mmdet's are."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone


def test_check_sizes_refuses_sizes_of_detectors(build_snnet):
    detector = BaseDetector(build_snnet())
    assert check_sizes(detector, (), 'sizes') == ()
    with pytest.raises(ValueError, match='key: sizes'):
        check_sizes(detector, [(16, 16), (24, 32)], 'sizes')
    assert check_sizes(detector.backbone, [[16, 16]], 'sizes') == ((16, 16),)
