import io
import logging

from snnet_mm.utils import quiet_terminal
from snnet_mm.utils.logging import errors_only


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


def test_only_errors_of_a_logger_are_shown(caplog):
    with errors_only('a_package'):
        logging.getLogger('a_package.part').warning('skipped')
        logging.getLogger('a_package.part').error('failed')
        logging.getLogger('b').warning('other')
    logging.getLogger('a_package').warning('after')
    assert caplog.messages == ['failed', 'other', 'after']
