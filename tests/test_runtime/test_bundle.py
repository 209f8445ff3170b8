"""Files of a bundle: damaged, replaced, or outside of its folder."""

import os

import numpy as np
import pytest

from snnet_mm.runtime.bundle import check_whole, describe_file, open_onnx


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'bundle').mkdir()
    return tmp_path / 'bundle'


def test_check_whole_compares_digests(folder):
    (folder / 'a').write_bytes(b'abc')
    about = describe_file(folder / 'a')
    assert about == dict(
        name='a',
        bytes=3,
        sha256='ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    )
    assert check_whole(folder, about) == folder / 'a'
    (folder / 'b').write_bytes(b'abd')
    weighted = describe_file(folder / 'b') | dict(weights=about)
    os.replace(folder / 'b', folder / 'a')
    for wrong in (about, weighted):
        with pytest.raises(ValueError, match='=a52d159f.* ba7816bf.*anew'):
            check_whole(folder, wrong)
    with pytest.raises(ValueError, match='bundle/b: sha256=None'):
        check_whole(folder, about | dict(name='b'))


@pytest.mark.parametrize('name', ['../key', '..', '{above}/key', 'sub/key', 'out'])
def test_check_whole_refuses_files_outside_of_folder(folder, name):
    (folder / 'sub').mkdir()
    for path in (folder.parent / 'key', folder / 'sub/key', folder / 'inside'):
        path.write_bytes(b'secret')
    (folder / 'link').symlink_to('inside')
    (folder / 'out').symlink_to('../key')
    about = describe_file(folder / 'link')
    assert check_whole(folder, about) == folder / 'link'
    with pytest.raises(ValueError, match='outside of the folder, or a link out of it'):
        check_whole(folder, about | dict(name=name.format(above=folder.parent)))


def write_product(path, weights):
    """Write a graph ``y = x w`` for weights in an external file."""
    onnx = pytest.importorskip('onnx')
    pytest.importorskip('onnxruntime')
    tensor = onnx.TensorProto(name='w', data_type=1, dims=(64, 64), data_location=1)
    tensor.external_data.add(key='location', value=weights)
    sides = [onnx.helper.make_tensor_value_info(x, 1, (1, 64)) for x in 'xy']
    node = onnx.helper.make_node('MatMul', ['x', 'w'], ['y'])
    graph = onnx.helper.make_graph([node], 'g', sides[:1], sides[1:], [tensor])
    versions = dict(opset_imports=[onnx.helper.make_opsetid('', 17)], ir_version=8)
    path.write_bytes(onnx.helper.make_model(graph, **versions).SerializeToString())


@pytest.mark.parametrize('place', ['../key', 'link', 'gone'])
def test_open_onnx_refuses_weights_outside_of_folder(folder, place):
    np.ones((64, 64), np.float32).tofile(folder.parent / 'key')
    (folder / 'link').symlink_to('../key')
    write_product(folder / 'm.onnx', place)
    with pytest.raises(ValueError, match='m.onnx cannot be opened: .*xternal data'):
        open_onnx(folder / 'm.onnx', 1)


@pytest.mark.filterwarnings("ignore:Specified provider 'CUDA")
def test_open_onnx_never_falls_back_to_the_cpu(folder):
    """As onnxruntime does where it cannot load a library of CUDA."""
    np.ones((64, 64), np.float32).tofile(folder / 'weights')
    write_product(folder / 'm.onnx', 'weights')
    x = np.ones((1, 64), np.float32)
    assert open_onnx(folder / 'm.onnx', 1, 'cpu')(x)[0].tolist() == [[64] * 64]
    with pytest.raises(ValueError, match="provider='cuda' .*m.onnx runs on"):
        open_onnx(folder / 'm.onnx', 1, 'cuda')
