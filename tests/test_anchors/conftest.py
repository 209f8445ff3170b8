import logging

import pytest
from mmengine.logging import MMLogger


@pytest.fixture
def log(caplog):
    """Returns messages that mmengine logged, by default warnings and above."""
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield lambda least=logging.WARNING: [
        r.getMessage() for r in caplog.records if r.levelno >= least
    ]
    logger.removeHandler(caplog.handler)
