import pytest
from small import small


@pytest.fixture
def task():
    """Task of the toy config; tests of several tasks parametrise it."""
    return 'seg'


@pytest.fixture
def toy_cfg(task, tmp_path):
    return small(task, tmp_path)


@pytest.fixture
def without_plot(monkeypatch):
    monkeypatch.setattr('snnet_mm.evaluation.tables.plot_pareto', lambda *args: None)
