import io
import logging

from snnet_mm.utils import quiet_terminal


def test_only_warnings_reach_the_terminal(tmp_path):
    logger, terminal = logging.Logger('test', logging.INFO), io.StringIO()
    logger.addHandler(logging.StreamHandler(terminal))
    logger.addHandler(logging.FileHandler(tmp_path / 'log'))
    with quiet_terminal(logger):
        logger.info('table')
        logger.warning('careful')
    logger.info('after')
    assert terminal.getvalue() == 'careful\nafter\n'
    assert (tmp_path / 'log').read_text() == 'table\ncareful\nafter\n'
