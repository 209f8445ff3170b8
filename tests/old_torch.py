"""What versions of torch older than the pinned one cannot do."""

import pytest
import torch

writes_onnx = pytest.mark.skipif(
    torch.__version__ < (2, 7),
    reason="torch 2.6's ONNX exporter fails on batch norm and repeats equal weights",
)
