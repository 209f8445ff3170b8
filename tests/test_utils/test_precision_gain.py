"""The gain of smaller precisions is measured, with products that are right."""

import time

import pytest
import torch

from snnet_mm.utils import precision_gain, print_gains


@pytest.mark.parametrize('seconds', [0.002, 0.016])
def test_the_gain_is_a_ratio_of_times(monkeypatch, seconds):
    products = lambda: time.sleep(0.008), lambda: time.sleep(seconds)
    monkeypatch.setitem(precision_gain.PRODUCTS, 'int8', lambda: products)
    found = precision_gain.measured_gain('int8')
    assert found == pytest.approx(0.008 / seconds, rel=0.2)


def test_what_is_printed(monkeypatch, capsys):
    gains = dict(int8=2.345, bf16=0.5)
    monkeypatch.setattr(precision_gain, 'measured_gain', gains.get)
    print_gains(['fp32', 'int8', 'bf16'])
    assert capsys.readouterr().out.splitlines() == [
        f'Measured on this CPU: matrix products in {words}'
        for words in (
            'int8 are 2.3 x as fast as in fp32; the whole gains less',
            'bf16 are 0.5 x as fast as in fp32; expect no gain',
        )
    ]


def test_without_onnxruntime_nothing_is_said(monkeypatch, capsys):
    monkeypatch.setattr(precision_gain, 'find_spec', lambda name: None)
    print_gains(['int8', 'fp16'])
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize('precision', ['int8', 'bf16'])
def test_the_products_are_those_of_matrices(precision):
    if precision == 'int8':
        pytest.importorskip('onnx')
        pytest.importorskip('onnxruntime')
    found = [run() for run in precision_gain.PRODUCTS[precision]()]
    if precision == 'int8':
        found = [torch.from_numpy(product) for (product,) in found]
    full, small = found[0], found[1].float()
    assert 1e-4 < (small - full).norm() / full.norm() < 0.02
