"""Overrides of toy configs: small models with backbones of the mm packages."""

VIT = dict(_delete_=True, type='VisionTransformer', img_size=(64, 64), patch_size=8)
SWIN = dict(_delete_=True, type='SwinTransformer')
FPN = dict(_delete_=True, type='FPN', out_channels=32, num_outs=4)
GAP = dict(type='GlobalAveragePooling')


def seg_vit(dim, depth):
    vit = dict(VIT, embed_dims=dim, num_layers=depth, num_heads=2)
    vit['out_indices'] = (depth - 1,)
    return dict(backbone=vit, decode_head=dict(in_channels=dim))


def det_swin(dim, depth):
    swin = dict(SWIN, embed_dims=dim, depths=(1, depth, 1), num_heads=(1, 2, 4))
    swin |= dict(window_size=4, strides=(4, 2, 2), out_indices=(0, 1, 2))
    widths = [dim, 2 * dim, 4 * dim]
    return dict(backbone=swin, neck=dict(FPN, in_channels=widths))


def seg_mit(dim, depth):
    mit = dict(_delete_=True, type='MixVisionTransformer', embed_dims=dim)
    mit |= dict(num_stages=3, num_layers=(1, depth, 1), num_heads=(1, 2, 4))
    mit |= dict(patch_sizes=(7, 3, 3), strides=(4, 2, 2), sr_ratios=(4, 2, 1))
    mit |= dict(out_indices=(0, 1, 2), mlp_ratio=2)
    widths = [dim, 2 * dim, 4 * dim]
    head = dict(_delete_=True, type='SegformerHead', in_channels=widths)
    head |= dict(in_index=[0, 1, 2], channels=8, num_classes=6, dropout_ratio=0)
    return dict(backbone=mit, decode_head=head)


def cls_head(kind, dim):
    return dict(_delete_=True, type=kind, num_classes=3, in_channels=dim)


def cls_swin(dim, depth):
    arch = dict(embed_dims=dim, depths=(depth, 1), num_heads=(1, 2))
    swin = dict(SWIN, arch=arch, img_size=64, window_size=4, out_indices=(1,))
    return dict(backbone=swin, neck=GAP, head=cls_head('LinearClsHead', 2 * dim))


def cls_resnet(depth, _):
    resnet = dict(_delete_=True, type='ResNet', depth=depth)
    return dict(backbone=resnet, neck=GAP, head=cls_head('LinearClsHead', 512))


def cls_vit(dim, depth):
    sizes = dict(embed_dims=dim, num_layers=depth, num_heads=2)
    arch = dict(sizes, feedforward_channels=3 * dim)
    head = cls_head('VisionTransformerClsHead', dim)
    return dict(backbone=dict(VIT, arch=arch), head=head)


def cls_mean(dim, depth):
    model = cls_vit(dim, depth)
    model['backbone'] |= dict(out_type='avg_featmap', final_norm=False)
    return model | dict(head=cls_head('LinearClsHead', dim))


def own_vit(dim, depth):
    arch = dict(embed_dims=dim, depth=depth, num_heads=2)
    return dict(backbone=dict(arch=arch), decode_head=dict(in_channels=dim))
