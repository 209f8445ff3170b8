import sys
import warnings

import pytest

from snnet_mm.utils import ToolParser, check, check_file, run_command


def test_errors_of_users_are_short(capsys, monkeypatch):
    def main():
        ToolParser().parse_args()
        check(False, '--kind', 'FSS', ['FS', 'SFS'])

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit, match='1'):
        run_command(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: kind='FSS'; allowed: 'FS', 'SFS'")
    monkeypatch.setattr(sys, 'argv', ['tool', '--traceback'])
    with pytest.raises(ValueError, match='FSS'):
        run_command(main)


def test_the_nearest_file_is_named(tmp_path):
    (tmp_path / 'iter_300.pth').touch()
    for path in (None, 'timm://vit', tmp_path / 'iter_300.pth'):
        check_file(path, 'option: --x')
    with pytest.raises(ValueError, match="exist; did you mean 'iter_300.pth' in /"):
        check_file(tmp_path / 'iter_30.pth', 'option: --x')
    (tmp_path / 'a.pth').mkdir()
    with pytest.raises(ValueError, match=r'a.pth is no file \(option: --x\)'):
        check_file(tmp_path / 'a.pth', 'option: --x')


@pytest.mark.parametrize('options, heard', [((), ['ours']), (('--verbose',), None)])
def test_warnings_of_the_packages_below_are_for_verbose(monkeypatch, options, heard):
    def main():
        for module in ('mmcv.cnn', 'snnet_mm.apis'):
            warnings.warn_explicit('ours', UserWarning, 'a.py', 1, module)

    monkeypatch.setattr(sys, 'argv', ['tool', *options])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        run_command(main)
    assert [str(w.message) for w in caught] == (heard or ['ours', 'ours'])


@pytest.mark.parametrize('options, printed', [((), 'a\nb\n'), (('--verbose',), None)])
def test_noise_of_the_packages_below_is_not_printed(
    monkeypatch, capsys, options, printed
):
    noise = 'Loads checkpoint by http backend from path: x'

    def main():
        print('a')
        print(noise)
        print('b')

    monkeypatch.setattr(sys, 'argv', ['tool', *options])
    run_command(main)
    assert capsys.readouterr().out == (printed or f'a\n{noise}\nb\n')
