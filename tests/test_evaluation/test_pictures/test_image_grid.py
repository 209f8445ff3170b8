import numpy as np
from matplotlib.figure import Figure

from snnet_mm.evaluation import plot_sheet


def test_rows_and_columns(tmp_path, monkeypatch):
    drawn = []
    savefig = Figure.savefig

    def spy(figure, *args, **kwargs):
        drawn.extend(figure.axes)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', spy)
    rows = [
        [np.full((height, 8, 3), shade, np.uint8) for shade in shades]
        for height, shades in ((4, (10, 20)), (8, (30, 40)))
    ]
    path = tmp_path / 'sheet.png'
    plot_sheet(rows, ['small', 'large'], path)
    assert path.read_bytes().startswith(b'\x89PNG')
    assert [axes.get_title() for axes in drawn] == ['small', 'large', '', '']
    assert [axes.images[0].get_array()[0, 0, 0] for axes in drawn] == [10, 20, 30, 40]
    heights = [axes.get_position().height for axes in drawn]
    # The second row's images are twice as high.
    assert heights[2] > 1.7 * heights[0]
