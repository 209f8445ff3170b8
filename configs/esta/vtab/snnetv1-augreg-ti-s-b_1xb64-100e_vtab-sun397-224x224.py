# ESTA on sun397 of VTAB-1k in folders (figure 4): 397 classes, 800 training
# images. One GPU, batch 64, 1300 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_caltech101-224x224.py']
data_root = 'data/vtab/sun397'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
model = dict(model=dict(head=dict(num_classes=397)))
