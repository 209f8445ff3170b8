"""Stitched language models of the LLaMA family (ESTA, section 4.3)."""

from .causal_lm import CausalLM, Perplexity, TextPreprocessor
from .export import StitchForCausalLM, export_stitch
from .hf_decoder_anchor import HFDecoderAnchor, TextState
from .text_datasets import AlpacaDataset, TextFiles, build_tokenizer
