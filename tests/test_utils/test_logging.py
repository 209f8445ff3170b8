import io
import logging

import pytest

from snnet_mm.utils import quiet_terminal


@pytest.fixture
def logger(tmp_path):
    logger = logging.Logger('test', logging.INFO)
    logger.terminal = io.StringIO()
    logger.addHandler(logging.StreamHandler(logger.terminal))
    logger.addHandler(logging.FileHandler(tmp_path / 'log'))
    return logger


def test_only_warnings_reach_the_terminal(logger, tmp_path):
    with quiet_terminal(logger):
        logger.info('table')
        logger.warning('careful')
    logger.info('after')
    assert logger.terminal.getvalue() == 'careful\nafter\n'
    assert (tmp_path / 'log').read_text() == 'table\ncareful\nafter\n'


def test_the_terminal_comes_back_after_an_error(logger):
    with pytest.raises(RuntimeError), quiet_terminal(logger):
        raise RuntimeError
    logger.info('after')
    assert logger.terminal.getvalue() == 'after\n'


def test_a_stricter_terminal_stays_stricter(logger):
    logger.handlers[0].setLevel(logging.ERROR)
    with quiet_terminal(logger):
        logger.warning('careful')
    assert logger.terminal.getvalue() == ''
