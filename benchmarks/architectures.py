"""Small models of the architectures in transformers, with random weights.

architectures() is empty if transformers is not installed.
"""

import importlib.util
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

_TOKENS, _LENGTH, _SIDE = 64, 12, 16
_TEXT = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": _TOKENS, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_DECODER = _TEXT | {"num_key_value_heads": 2, "head_dim": 8}
_IMAGE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": _SIDE, "patch_size": 4,
}  # fmt: skip


class Takes(nn.Module):
    """A model as a function of one floating-point tensor, which text models ignore."""

    def __init__(self, model: nn.Module, kind: str):
        super().__init__()
        self.model, self.kind = model, kind
        self.register_buffer("ids", torch.randint(3, _TOKENS, (2, _LENGTH)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        given = {
            "text": {"input_ids": self.ids},
            "both": {"input_ids": self.ids, "decoder_input_ids": self.ids},
            "image": {"pixel_values": x},
            "audio": {"input_values": x},
            "mel": {"input_features": x, "decoder_input_ids": self.ids},
        }[self.kind]
        return self.model(**given).last_hidden_state


@dataclass(frozen=True)
class Architecture:
    name: str
    config: str
    settings: dict = field(hash=False)
    kind: str = "text"

    def build(self) -> nn.Module:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings)
        return Takes(transformers.AutoModel.from_config(config), self.kind)

    def inputs(self) -> Tensor:
        shapes = {"image": (2, 3, _SIDE, _SIDE), "audio": (2, 400), "mel": (2, 8, 40)}
        return torch.randn(shapes.get(self.kind, (1,)))


def _every() -> list[Architecture]:
    # The other implementations do not support float64.
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": _TOKENS}
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    whisper = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 64,
        "vocab_size": _TOKENS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }  # fmt: skip
    wav2vec2 = {
        "conv_dim": (16, 16), "conv_stride": (2, 2), "conv_kernel": (4, 3),
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0,
        "feat_extract_norm": "layer",
    }  # fmt: skip
    convnext = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4}
    return [
        Architecture("llama", "LlamaConfig", _DECODER),
        Architecture("qwen2", "Qwen2Config", _TEXT | {"num_key_value_heads": 2}),
        Architecture("qwen3", "Qwen3Config", _DECODER),
        Architecture("gemma2", "Gemma2Config", _DECODER | {"query_pre_attn_scalar": 8}),
        Architecture("gemma3", "Gemma3TextConfig", _DECODER | {"query_pre_attn_scalar": 8}),
        Architecture("mistral", "MistralConfig", _DECODER),
        Architecture("phi3", "Phi3Config", _TEXT | {"num_key_value_heads": 2}),
        Architecture("mixtral", "MixtralConfig", _DECODER | experts),
        Architecture("gpt-oss", "GptOssConfig", _DECODER | experts),
        Architecture("nemotron", "NemotronConfig", _DECODER),
        Architecture("gpt2", "GPT2Config", gpt2),
        Architecture("bert", "BertConfig", _TEXT),
        Architecture("roberta", "RobertaConfig", _TEXT),
        Architecture(
            "modernbert", "ModernBertConfig", _TEXT | {"cls_token_id": 1, "sep_token_id": 2}
        ),
        Architecture("deberta", "DebertaV2Config", _TEXT),
        Architecture("t5", "T5Config", t5 | {"vocab_size": _TOKENS}, "both"),
        Architecture(
            "t5 gated", "T5Config",
            t5 | {"vocab_size": _TOKENS, "feed_forward_proj": "gated-gelu"}, "both",
        ),
        Architecture("vit", "ViTConfig", _IMAGE, "image"),
        Architecture("dinov2", "Dinov2Config", _IMAGE | {"use_swiglu_ffn": True}, "image"),
        Architecture("siglip", "SiglipVisionConfig", _IMAGE, "image"),
        Architecture("clip", "CLIPVisionConfig", _IMAGE, "image"),
        Architecture("convnext", "ConvNextConfig", convnext, "image"),
        Architecture("whisper", "WhisperConfig", whisper, "mel"),
        Architecture("wav2vec2", "Wav2Vec2Config", _TEXT | wav2vec2, "audio"),
    ]  # fmt: skip


def architectures() -> list[Architecture]:
    return _every() if importlib.util.find_spec("transformers") else []
