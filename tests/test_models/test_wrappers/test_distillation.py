import copy

import pytest
import torch
import torch.nn.functional as F
from mmengine.model import ImgDataPreprocessor
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS

from snnet_mm.models import Distillation, DistillationWrapper, set_stitch
from snnet_mm.models.wrappers.distillation import recorded_logits, renormalise


def test_distillation_hard_and_soft_labels():
    """The teacher's choice or its probabilities."""
    student, teacher = torch.randn(6, 4), torch.randn(6, 4)
    pairs = zip(student, teacher, strict=True)
    hard, soft = (Distillation(x, 0.25) for x in ('hard', 'soft'))
    choice = sum(-s.log_softmax(0)[t.argmax()] for s, t in pairs) / 6
    torch.testing.assert_close(hard.loss(student, teacher), choice)
    p, q = teacher.softmax(1), student.softmax(1)
    divergence = (p * (p / q).log()).sum() / 6
    torch.testing.assert_close(soft.loss(student, teacher), divergence)
    same = soft.loss(student, student + 5)
    torch.testing.assert_close(same, torch.tensor(0.0), atol=1e-6, rtol=0)

    losses = dict(loss_a=torch.tensor(2.0), acc=torch.tensor(9.0))
    losses['b.loss'] = [torch.tensor(3.0), torch.tensor(4.0)]
    added = soft.add_to(losses, student, teacher)
    assert added.pop('loss_distill') == 0.25 * soft.loss(student, teacher)
    assert added == {'loss_a': 1.5, 'acc': 9, 'b.loss': [2.25, 3]}


def test_distillation_two_classes_may_have_one_output():
    student, teacher = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4)
    p, q = teacher.sigmoid(), student.sigmoid()
    kl = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    torch.testing.assert_close(Distillation('soft').loss(student, teacher), kl.mean())
    hard = F.binary_cross_entropy_with_logits(student, (teacher > 0).float())
    torch.testing.assert_close(Distillation('hard').loss(student, teacher), hard)

    head = torch.nn.Conv2d(8, 1, 1)
    with recorded_logits(head), pytest.raises(ValueError, match='two classes or more'):
        head.forward(torch.randn(2, 8, 3, 4))
    head.num_classes = 2
    with recorded_logits(head) as logits:
        head.forward(torch.randn(2, 8, 3, 4))
    assert logits[0].shape == (2, 1, 3, 4)


@pytest.mark.parametrize('flips', [(False, False), (True, False), (False, True)])
def test_renormalise_equals_the_teachers_preprocessor(flips):
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    ours = ImgDataPreprocessor([100, 110, 120], [50, 60, 70], bgr_to_rgb=flips[0])
    theirs = ImgDataPreprocessor([10, 0, 128], [1, 255, 64], rgb_to_bgr=flips[1])
    wanted = theirs(dict(inputs=list(images)))['inputs']
    got = renormalise(ours(dict(inputs=list(images)))['inputs'], ours, theirs)
    torch.testing.assert_close(got, wanted)
    plain = ImgDataPreprocessor()
    raw = plain(dict(inputs=list(images)))['inputs']
    torch.testing.assert_close(renormalise(raw, plain, theirs), wanted)
    assert torch.equal(renormalise(wanted, theirs, theirs), wanted)


TEACHER = dict(
    type='ToyClassifier',
    channels=3,
    dropout=0.5,
    data_preprocessor=dict(
        type='ImgDataPreprocessor', mean=[7, 8, 9], std=[30, 20, 10], bgr_to_rgb=True
    ),
)


@pytest.fixture
def teacher(tmp_path, randomise):
    """A teacher that goes by colours, and its checkpoint."""
    teacher = randomise(MODELS.build(TEACHER)).eval()
    teacher.path = str(tmp_path / 'teacher.pth')
    torch.save(dict(state_dict=teacher.state_dict()), teacher.path)
    return teacher


@pytest.mark.parametrize('labels', ['hard', 'soft'])
def test_distillation_wrapper_student_learns_from_teacher(
    build_classifier, batch, teacher, labels
):
    student = build_classifier()
    model = DistillationWrapper(student, TEACHER, teacher.path, labels, alpha=0.3)
    set_stitch(model, 6)
    data = model.data_preprocessor(copy.deepcopy(batch), True)
    losses = model(**data, mode='loss')
    images = teacher.data_preprocessor(copy.deepcopy(batch))['inputs']
    logits, taught = student(data['inputs']), teacher(images)
    distilled = Distillation(labels).loss(logits, taught)
    task = F.cross_entropy(logits, data['data_samples'])
    assert list(losses) == ['loss_cls', 'accuracy', 'loss_distill']
    torch.testing.assert_close(losses['loss_cls'], 0.7 * task)
    torch.testing.assert_close(losses['loss_distill'], 0.3 * distilled)


def test_distillation_wrapper_teacher_is_no_part_of_model(
    build_classifier, batch, teacher
):
    student = build_classifier()
    keys = list(student.state_dict())
    model = DistillationWrapper(student, TEACHER, teacher.path)
    model.init_weights()
    (built,) = model._teacher
    assert list(model.state_dict()) == keys
    parts = {*built.modules(), *built.parameters()}
    assert not parts & {*model.modules(), *model.parameters()}
    before = copy.deepcopy(built.state_dict())
    optimizer = OptimWrapper(torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):
        model.train()
        model.train_step(copy.deepcopy(batch), optimizer)
    assert model._teacher[0] is built
    assert not any(m.training for m in built.modules())
    for name, parameter in built.named_parameters():
        assert not parameter.requires_grad
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


def test_distillation_wrapper_without_teacher_learns_alone(build_classifier, batch):
    student = build_classifier()
    model = DistillationWrapper(student, teacher=None)
    model.init_weights()
    set_stitch(model, 6)
    data = model.data_preprocessor(batch, True)
    losses = model(**data, mode='loss')
    task = F.cross_entropy(student(data['inputs']), data['data_samples'])
    assert list(losses) == ['loss_cls', 'accuracy']
    torch.testing.assert_close(losses['loss_cls'], task)
    with pytest.raises(ValueError, match='no teacher.*teacher_checkpoint'):
        DistillationWrapper(student, None, 'teacher.pth')


def test_timm_teacher_equals_timm(build_classifier, batch, tmp_path, randomise):
    timm = pytest.importorskip('timm')
    network = randomise(timm.create_model('test_byobnet', num_classes=5)).eval()
    torch.save(network.state_dict(), tmp_path / 'timm.pth')
    config = dict(type='TimmTeacher', name='test_byobnet', pretrained=False)
    config['num_classes'] = 5
    path = str(tmp_path / 'timm.pth')
    model = DistillationWrapper(build_classifier(), config, path, 'soft')
    images = torch.stack(batch['inputs']).flip(1) / 255  # RGB
    cfg = network.pretrained_cfg
    mean, std = (torch.tensor(cfg[key]).view(-1, 1, 1) for key in ('mean', 'std'))
    taught = model.teach(model.data_preprocessor(batch, True)['inputs'])
    wanted = network((images - mean) / std)
    torch.testing.assert_close(taught, wanted, rtol=1e-4, atol=1e-4)
    assert wanted.std(0).min() > 0.01
