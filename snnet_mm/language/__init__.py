"""Stitched language models of the LLaMA family (ESTA, section 5.2)."""

from snnet_mm.utils import refusal

try:
    from .causal_lm import CausalLM, Perplexity, TextPreprocessor
    from .hf_decoder_anchor import HFDecoderAnchor, TextState
    from .text_datasets import AlpacaDataset, TextFiles
except ImportError as error:  # mmengine would report it as a wrong PYTHONPATH
    expected = f"the packages of the extra 'llama' of this package: {error}"
    raise refusal('custom_imports', __name__, expected) from error
