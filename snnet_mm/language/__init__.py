"""Stitched language models of the LLaMA family (ESTA, section 4.3)."""

from snnet_mm.utils import refusal

try:
    from .causal_lm import CausalLM, Perplexity, TextPreprocessor
    from .export import StitchForCausalLM, export_stitch
    from .hf_decoder_anchor import HFDecoderAnchor, TextState
    from .text_datasets import AlpacaDataset, TextFiles, build_tokenizer
except ImportError as error:  # mmengine would report it as a wrong PYTHONPATH
    wanted = f"what the extra 'llama' of this package has: {error}"
    raise refusal('custom_imports', __name__, wanted) from error
