import pytest
from toy import task, toy_cfg  # noqa: F401


@pytest.fixture
def without_plot(monkeypatch):
    monkeypatch.setattr('snnet_mm.evaluation.tables.plot_pareto', lambda *args: None)
