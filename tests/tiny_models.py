"""Two-layer transformers models of every supported architecture, seeded, with a byte-level tokenizer.

    python -m tests.tiny_models llama /tmp/tiny-llama

makes one by hand. torch and transformers are imported only when a model is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SPECIAL_TOKENS = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
BOS, EOS, PAD = 256, 257, 258
VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": COMMON,
    "mistral": {**COMMON, "sliding_window": None},
    "qwen2": COMMON,
    "qwen3": {**COMMON, "head_dim": 24},
    "gemma3_text": {
        **COMMON,
        "head_dim": 24,
        "query_pre_attn_scalar": 20,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi3": COMMON,
    "gpt2": {
        "vocab_size": VOCAB_SIZE,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 128,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    },
}


def tiny_model(model_type: str, seed: int = 0, **config_overrides: Any) -> PreTrainedModel:
    """A float32 model in eval mode with eager attention and every parameter random, norms and biases too."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **{**CONFIGS[model_type], **config_overrides})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            around_one = "norm" in name or ".ln_" in name
            centre = 1.0 if around_one and name.endswith("weight") and model_type != "gemma3_text" else 0.0
            parameter.data = centre + 0.2 * noise
        elif "embed" in name or "wte" in name or "wpe" in name:
            parameter.data = 0.5 * noise
        else:
            fan_in = parameter.shape[0 if model_type == "gpt2" and "lm_head" not in name else 1]
            parameter.data = 1.5 * noise / fan_in**0.5
    model.tie_weights()
    return model


def save_tiny_model(
    model_type: str, directory: str | Path, seed: int = 0, max_shard_size: str = "5GB", **config_overrides: Any
) -> Path:
    """Write config.json, safetensors and a tokenizer into ``directory``. Returns it."""
    directory = Path(directory)
    model = tiny_model(model_type, seed, **config_overrides)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    save_tiny_tokenizer(directory)
    return directory


def save_tiny_tokenizer(directory: str | Path) -> None:
    """Byte-level tokenizer: token id = byte value, then SPECIAL_TOKENS; encoding prepends <s>."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    directory = Path(directory)
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 128,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each byte (GPT-2's encoder.py)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


if __name__ == "__main__":
    print(save_tiny_model(sys.argv[1], sys.argv[2]))
