# The schedule of small ViTs trained from scratch, for classifiers.
_base_ = ['./adamw_cosine.py']
