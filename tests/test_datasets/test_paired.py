import pytest
from labelled_folders import write_depth
from mmengine.registry import DATASETS, init_default_scope

from snnet_mm.datasets import PairedDataset


def build(root, lines):
    (root / 'list.txt').write_text(lines)
    return DATASETS.build(
        dict(
            type=PairedDataset.__name__,
            data_root=str(root),
            # In the order of a written config, which sorts its keys.
            data_prefix=dict(depth_map_path='depth', img_path='images'),
            ann_file='list.txt',
            pipeline=[
                dict(type='LoadImageFromFile'),
                dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
            ],
        )
    )


def test_paired_dataset_images_and_depths_of_list(tmp_path):
    import snnet_mm.tasks.mmseg  # noqa: F401

    init_default_scope('mmseg')
    write_depth(tmp_path, 3)
    (tmp_path / 'depth/0.png').rename(tmp_path / 'depth/a b.png')
    dataset = build(tmp_path, '2.png\t2.png\n0.png\ta b.png\n')
    names = [info['depth_map_path'].removeprefix(str(tmp_path)) for info in dataset]
    assert names == ['/depth/2.png', '/depth/a b.png']
    depth = dataset[1]['gt_depth_map']
    assert depth[0, 0] == pytest.approx(1)
    assert depth[0, -1] == pytest.approx(4.2)
    with pytest.raises(ValueError, match='list.txt: 2.png.*dataset.ann_file'):
        build(tmp_path, '2.png\n')
