import io
import logging
import warnings
from contextlib import nullcontext

from mmengine.logging import MMLogger, print_log

from snnet_mm.utils import plural, quiet_coco, quiet_terminal
from snnet_mm.utils.logging import at_least, quiet_imports


def test_quiet_terminal_shows_warnings_alone(tmp_path):
    logger, terminal = logging.Logger('test', logging.INFO), io.StringIO()
    logger.addHandler(logging.StreamHandler(terminal))
    logger.addHandler(logging.FileHandler(tmp_path / 'log'))
    with quiet_terminal(logger):
        logger.info('table')
        logger.warning('careful')
    logger.info('after')
    assert terminal.getvalue() == 'careful\nafter\n'
    assert (tmp_path / 'log').read_text() == 'table\ncareful\nafter\n'


def test_quiet_coco_hides_progress_of_pycocotools(capsys):
    from pycocotools.coco import COCO

    for context, lines in ((quiet_coco, 0), (nullcontext, 2)):
        with context():
            coco = COCO()
            coco.dataset = dict(images=[], annotations=[], categories=[])
            coco.createIndex()
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_plural_words():
    found = [plural(n, w) for w in ('stitch', 'image') for n in (0, 1, 2)]
    assert ', '.join(found) == (
        '0 stitches, 1 stitch, 2 stitches, 0 images, 1 image, 2 images'
    )


def test_at_least_shows_errors_of_a_logger(caplog):
    with at_least(logging.ERROR, logging.getLogger('a_package')):
        logging.getLogger('a_package.part').warning('skipped')
        logging.getLogger('a_package.part').error('failed')
        logging.getLogger('b').warning('other')
    logging.getLogger('a_package').warning('after')
    assert caplog.messages == ['failed', 'other', 'after']


def test_quiet_imports_hides_messages_of_mm_packages(capsys):
    """What they print, and warnings of Python and of mmengine's logger."""
    logger, terminal = MMLogger.get_current_instance(), io.StringIO()
    logger.addHandler(handler := logging.StreamHandler(terminal))
    with warnings.catch_warnings(record=True) as caught, quiet_imports():
        print_log('Could not import OneDL', level=logging.DEBUG)
        logger.warning('Line NMS is not compiled')
        logger.error('a part is broken')
        warnings.warn_explicit('no module', UserWarning, 'a.py', 1, 'mmdet.evaluation')
        warnings.warn_explicit('another', UserWarning, 'a.py', 1, 'a')
    print('after')
    logger.warning('shown')
    logger.removeHandler(handler)
    assert terminal.getvalue() == 'a part is broken\nshown\n'
    assert 'OneDL' not in (out := capsys.readouterr().out)
    assert 'after' in out
    assert [str(warning.message) for warning in caught] == ['another']
