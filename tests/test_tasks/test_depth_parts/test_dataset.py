import pytest
from labelled_folders import write_depth
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS

from snnet_mm.tasks.depth_parts import DepthDataset


@pytest.mark.parametrize('listed', [False, True])
def test_depth_maps_of_a_folder_or_of_a_list(tmp_path, listed):
    init_default_scope('mmseg')
    write_depth(tmp_path, 3)
    (tmp_path / 'list.txt').write_text('2\n0\n')
    dataset = DATASETS.build(
        dict(
            type=DepthDataset.__name__,
            data_root=str(tmp_path),
            data_prefix=dict(img_path='rgb', seg_map_path='depth'),
            ann_file='list.txt' if listed else '',
            img_suffix='.png',
            seg_map_suffix='.png',
            pipeline=[
                dict(type='LoadImageFromFile'),
                dict(type='LoadDepthMap', depth_rescale_factor=1e-3),
            ],
        )
    )
    names = [info['depth_map_path'].removeprefix(str(tmp_path)) for info in dataset]
    order = (2, 0) if listed else range(3)
    assert names == [f'/depth/{i}.png' for i in order]
    depth = dataset[0]['gt_depth_map']
    assert depth[0, 0] == pytest.approx(1)
    assert depth[0, -1] == pytest.approx(4.2)
