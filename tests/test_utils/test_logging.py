import logging

import pytest

from snnet_mm.utils import only_warnings


def test_only_warnings_get_through(caplog):
    logger = logging.getLogger('snnet_mm_test')
    logger.setLevel(logging.DEBUG)
    with only_warnings(logger):
        logger.info('hidden')
        logger.warning('shown')
    logger.info('shown again')
    assert caplog.messages == ['shown', 'shown again']


def test_the_level_is_restored_after_an_error():
    logger = logging.getLogger('snnet_mm_test')
    logger.setLevel(logging.ERROR)
    with pytest.raises(ZeroDivisionError), only_warnings(logger):
        raise ZeroDivisionError
    assert logger.level == logging.ERROR
