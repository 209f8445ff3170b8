"""Marks of tests that versions of torch older than the pinned one fail."""

import pytest
import torch

# Strict: where a version can, it fails, so that nothing stays marked for nothing.
writes_onnx = pytest.mark.xfail(
    torch.__version__ < (2, 7),
    reason="torch 2.6's ONNX exporter fails on batch norm and repeats equal weights; "
    'README.md, Versions',
    strict=True,
)
