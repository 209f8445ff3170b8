from functools import cache

import launching
import pytest
from running_here import run_here  # noqa: F401


@pytest.fixture(scope='session')
def run_tool():
    """Run a tool as a user would, from the repository root."""

    def run(tool, *args, ok=True):
        done = launching.run_tool(tool, *args)
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope='session')
def run_demo(run_tool, tmp_path_factory):
    """Runs the demo's own script with few iterations, 9 of each anchor
    and 3 of the rest, once per task.

    Gives its folder and what it printed.
    """

    @cache
    def run(task):
        work_dir = tmp_path_factory.mktemp('demo')
        args = ('--work-dir', work_dir, '--iters', 9, '--num-scenes', 10)
        return work_dir, run_tool('demo.py', '--task', task, *args).stdout

    return run


@pytest.fixture(scope='session')
def demo(run_demo):
    """The demo of segmentation."""
    return run_demo('seg')
