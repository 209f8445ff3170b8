import io
import logging
import warnings

import pytest
from mmengine.logging import MMLogger

from snnet_mm.utils import quiet_terminal
from snnet_mm.utils.logging import WithoutNoise, errors_only, quiet_imports

NOISE = 'Could not import OneDL. Skipping OneDL datasets.'


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


@pytest.mark.parametrize(
    'texts',
    [
        ['a', '\n', NOISE, '\n', 'b\n'],
        [f'a\n{NOISE}\nb\n'],
        [f'a\n{NOISE}', '\n', 'b\n'],
        [f'{NOISE}\n', 'a\n', 'b\n', f'{NOISE}'],
        ['a\nb', '\n', f'{NOISE}', '\n'],
        ['loading annotations into memory...\nDone (t=0.00s)\n', 'a\nb\n'],
    ],
)
def test_only_noisy_lines_are_dropped(texts):
    stream = io.StringIO()
    filtered = WithoutNoise(stream)
    assert [filtered.write(text) for text in texts] == [len(text) for text in texts]
    assert stream.getvalue() == 'a\nb\n'


def test_a_report_with_a_word_of_a_noisy_message_is_shown():
    text = 'mIoU 45.2\nalign_corners=False\n│ OneDL │\nWrote it\n'
    stream = io.StringIO()
    WithoutNoise(stream).write(text)
    assert stream.getvalue() == text


def test_imports_say_nothing_of_their_optional_parts(capsys):
    logger = MMLogger.get_instance('imports')
    logger.handlers = [logging.StreamHandler(terminal := io.StringIO())]
    with warnings.catch_warnings(record=True) as caught, quiet_imports():
        print(f'a\n{NOISE}')
        logger.warning('Line NMS is not compiled.\nuse FORCE_CUDA=1 mim install')
        logger.warning('careful')
        warnings.warn_explicit('no module', UserWarning, 'a.py', 1, 'mmdet.evaluation')
    logger.warning('NMS is not compiled')
    assert capsys.readouterr().out == 'a\n'
    assert terminal.getvalue() == 'careful\nNMS is not compiled\n'
    assert not caught


def test_only_errors_of_a_logger_are_shown(caplog):
    with errors_only('a_package'):
        logging.getLogger('a_package.part').warning('skipped')
        logging.getLogger('a_package.part').error('failed')
        logging.getLogger('b').warning('other')
    logging.getLogger('a_package').warning('after')
    assert caplog.messages == ['failed', 'other', 'after']
