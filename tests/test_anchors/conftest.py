import logging

import pytest
from mmengine.logging import MMLogger


@pytest.fixture
def log(caplog):
    """A call that gives what mmengine has logged, warnings alone by default."""
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield lambda least=logging.WARNING: [
        r.getMessage() for r in caplog.records if r.levelno >= least
    ]
    logger.removeHandler(caplog.handler)
