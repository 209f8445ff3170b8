import pytest
from matplotlib.figure import Figure


@pytest.fixture
def drawn_axes(monkeypatch):
    """Axes of all saved figures."""
    axes, savefig = [], Figure.savefig

    def spy(figure, *args, **kwargs):
        axes.extend(figure.axes)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', spy)
    return axes
