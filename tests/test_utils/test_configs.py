import pytest
from mmengine.config import Config, ConfigDict

from snnet_mm.utils import load_config, set_length
from snnet_mm.utils.configs import innermost, innermost_parts


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f'{name}.py').write_text(text)


def test_load_config_merges_bases_and_options(tmp_path):
    model = "model = dict(type='A', backbone=dict(type='B'))\n"
    write(tmp_path, a=f'{model}x = 1', b="_base_ = './a.py'\ny = 2")
    cfg = load_config(tmp_path / 'b.py', {'model.backbone.type': 'C'})
    assert cfg.to_dict() == dict(
        model=dict(type='A', backbone=dict(type='C')), x=1, y=2
    )


def test_load_config_colours_are_for_visualizers(tmp_path):
    palette = [[1, 2, 3]]
    part = f'dict(metainfo=dict(palette={palette}))'
    write(tmp_path, a=f'palette = {palette}\nx = dict(datasets=[{part}])\n')
    cfg = load_config(tmp_path / 'a.py')
    wanted = [(1, 2, 3)]
    assert cfg.palette == cfg.x.datasets[0].metainfo.palette == wanted
    write(tmp_path, a="palette = 'random'")
    assert load_config(tmp_path / 'a.py').palette == 'random'


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('b.py', '', r'b.py cannot be read: FileNotFoundError: .*\(argument: config\)'),
        ('a.py', 'x = (', 'a.py cannot be read: SyntaxError'),
        ('a.py', "_base_ = 'no_package::a/b.py'", 'a.py cannot be .*no_package'),
        ('a.py', 'hooks = [dict(a=1)]', r'hooks.3.a.*a.py.*--cfg-options'),
        ('no_package::a.py', '', "'no_package::a.py' is invalid"),
    ],
)
def test_load_config_what_cannot_be_read_is_named(
    tmp_path, monkeypatch, name, text, message
):
    write(tmp_path, a=text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_config(name, {'hooks.3.a': 2})


def linear(end, begin=0, **more):
    return dict(type='LinearLR', begin=begin, end=end, **more)


def cosine(begin, end, **more):
    return dict(type='CosineAnnealingLR', begin=begin, end=end, **more)


@pytest.mark.parametrize(
    'schedules, new, expected',
    [
        # 300 are the old length.
        ([linear(25), cosine(25, 300)], 60, [linear(5), cosine(5, 60)]),
        ([linear(25), cosine(25, 300)], 700, [linear(59), cosine(59, 700)]),
        ([linear(25), cosine(25, 300)], 10, [cosine(1, 10)]),
        (
            [linear(5, convert_to_iter_based=True), cosine(5, 300, T_max=295)],
            10,
            [linear(1, convert_to_iter_based=True), cosine(1, 10, T_max=9)],
        ),
        ([cosine(0, 299), linear(300, 299)], 30, [cosine(0, 30)]),
        ([dict(milestones=[200, 275])], 3, [dict(milestones=[2, 2])]),
        (dict(step_size=100, begin=20), 30, dict(step_size=10, begin=2)),
        (
            dict(a=cosine(2, 300), b=cosine(0, 300)),
            30,
            dict(a=cosine(1, 30), b=cosine(0, 30)),
        ),
        (None, 30, None),
    ],
)
def test_set_length_scales_schedule(schedules, new, expected):
    for unit in ('iters', 'epochs'):
        loop = {f'max_{unit}': 300, 'val_interval': 50}
        cfg = Config(dict(train_cfg=loop, param_scheduler=schedules))
        set_length(cfg, **{unit: new})
        assert (cfg.param_scheduler or None) == expected
        # Scaled where it is longer, capped where it is shorter.
        interval = {700: 117, 60: 50}.get(new, new)
        assert cfg.train_cfg == {f'max_{unit}': new, 'val_interval': interval}
        other = dict(iters='epochs', epochs='iters')[unit]
        with pytest.raises(ValueError, match=f'{other}=3 is .* --{unit}, .*--{other}'):
            set_length(cfg, **{other: 3})
        with pytest.raises(ValueError, match=f'{unit}=0 is .*--{unit}'):
            set_length(cfg, **{unit: 0})


def test_set_length_scales_warm_ups():
    sampler, loss = dict(warm_up=100), dict(warm_up_iters=20)
    cfg = Config(
        dict(default_hooks=dict(a=dict(sampler=sampler)), model=[dict(b=loss)])
    )
    cfg.train_cfg = dict(max_iters=300)
    set_length(cfg, iters=30)
    assert cfg.default_hooks.a.sampler == dict(warm_up=10)
    assert cfg.model[0].b == dict(warm_up_iters=2)
    set_length(cfg)
    assert cfg.train_cfg == dict(max_iters=30)


def test_innermost_parts_of_a_concatenated_data_set():
    a, b, c = (dict(type='A', pipeline=[i]) for i in range(3))
    nested = dict(type='RepeatDataset', dataset=dict(datasets=[b, dict(dataset=c)]))
    dataset = ConfigDict(type='ConcatDataset', datasets=[a, nested])
    assert innermost_parts(dataset) == [a, b, c]
    assert innermost(dataset) == a


def test_load_config_stitched_network_inside_backbone_is_refused(tmp_path):
    """Its costs and exports know the maps of the stitched one, not of the outer one."""
    nested = "backbone_cfg=dict(type='SNNetv1', anchors=[])"
    write(tmp_path, a=f"model = dict(backbone=dict(type='ICNet', {nested}))")
    with pytest.raises(ValueError, match="'SNNetv1' is .* ICNet .*backbone_cf"):
        load_config(tmp_path / 'a.py')


def test_load_config_checkpoint_beside_anchors_is_refused(tmp_path):
    """mmseg would pass it on to the backbone, which has no such setting."""
    anchors = "backbone=dict(type='SNNetv2', anchors=[])"
    write(tmp_path, a=f"model = dict(pretrained='a.pth', {anchors})")
    with pytest.raises(ValueError, match="'a.pth' is .*init_cfg of each.*pretrained"):
        load_config(tmp_path / 'a.py')
