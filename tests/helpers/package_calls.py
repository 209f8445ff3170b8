"""Inference calls of the mm packages and ours, and their predictions."""

import torch

from snnet_mm.inferencers import init_inferencer


def infer(package, config, weights, image):
    """Predict a file or array with a package, seeded because some heads are random."""
    if package == 'mmseg':
        from mmseg.apis import inference_model, init_model

        model = init_model(config, weights, device='cpu')
        torch.manual_seed(0)
        return inference_model(model, image)
    if package == 'mmdet':
        from mmdet.apis import inference_detector, init_detector

        model = init_detector(config, weights, palette='random', device='cpu')
        torch.manual_seed(0)
        return inference_detector(model, image)
    # inference_model accepts only models of mmpretrain's own list.
    from mmpretrain.apis import ImageClassificationInferencer

    inferencer = ImageClassificationInferencer(config, weights, device='cpu')
    return inferencer(image, return_datasamples=True)[0]


def infer_ours(model, image):
    """Predict an image with the active stitch of a stitched model."""
    inferencer = init_inferencer(model)
    torch.manual_seed(0)
    found = inferencer(image, return_datasamples=True)
    found = found['predictions'] if isinstance(found, dict) else found
    return found[0] if isinstance(found, list) else found


def predicted(sample):
    """Return the tensors of a prediction by name."""
    if 'pred_instances' in sample:
        assert len(found := sample.pred_instances)
        return {key: found[key] for key in ('scores', 'labels', 'bboxes')}
    if 'pred_score' in sample:
        return dict(scores=sample.pred_score)
    name = 'seg_logits' if 'seg_logits' in sample else 'pred_depth_map'
    return {name: sample.get(name).data}
