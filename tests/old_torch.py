"""What versions of torch older than the pinned one cannot do."""

import pytest
import torch

batch_norm_in_onnx = pytest.mark.skipif(
    torch.__version__ < (2, 7),
    reason="torch 2.6's ONNX exporter fails on batch norm with the pinned onnxscript",
)
