from pathlib import Path

from snnet_mm.runtime import device

X86 = 'processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n'
ARM = 'processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n'


def test_the_model_of_a_processor(monkeypatch):
    for text, name in {
        X86 + X86.replace('EPYC', 'other'): 'AMD EPYC, cpu family 25, model 17',
        ARM: 'aarch64, CPU implementer 0x41, CPU part 0xd0c',
    }.items():
        monkeypatch.setattr(Path, 'read_text', lambda _, text=text: text)
        monkeypatch.setattr(Path, 'exists', lambda _: True)
        monkeypatch.setattr(device.platform, 'processor', lambda: '')
        monkeypatch.setattr(device.platform, 'machine', lambda: 'aarch64')
        assert device.processor() == name
