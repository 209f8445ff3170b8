import numpy as np
from matplotlib.figure import Figure

from snnet_mm.evaluation import DepthExample, plot_depths


def test_all_depths_share_one_scale(tmp_path, monkeypatch):
    drawn = []
    savefig = Figure.savefig

    def spy(figure, *args, **kwargs):
        drawn.extend(figure.axes)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', spy)
    truth = np.array([[0, 1.5, 2], [3, 4, 6]], np.float32)
    image = np.zeros((2, 3, 3), np.uint8)
    examples = [
        DepthExample(image, truth / scale, [truth + 1, truth + 2]) for scale in (1, 2)
    ]
    path = tmp_path / 'out' / 'depth.png'
    plot_depths(examples, ['small', 'large'], path)
    assert path.read_bytes().startswith(b'\x89PNG')
    *cells, bar = drawn
    assert [axes.get_title() for axes in cells[:4]] == [
        'image',
        'truth',
        'small',
        'large',
    ]
    assert bar.get_ylabel() == 'depth (m)'
    depths = [axes.images[0] for i, axes in enumerate(cells) if i % 4]
    assert {d.get_clim() for d in depths} == {(0, 6)}
    np.testing.assert_array_equal(depths[0].get_array().mask, truth == 0)
    np.testing.assert_array_equal(depths[4].get_array(), truth + 1)
