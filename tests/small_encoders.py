"""Text encoders of diffusers' pipelines, small and random: two layers each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Encoder:
    """A text encoder, and the pipelines that use it."""

    name: str
    used_by: str
    make: Callable[[], Any]

    def build(self) -> Any:
        torch.manual_seed(0)
        return self.make().eval()

    def run(self, model: Any) -> Tensor:
        """Two prompts, the second of which is padded in front or behind as encoders do."""
        ids = torch.arange(2 * 11).reshape(2, 11) % 60 + 3
        mask = torch.ones_like(ids)
        mask[1, 7:] = 0
        with torch.no_grad():
            hidden: Tensor = model(ids, attention_mask=mask, output_hidden_states=True)[0]
        return hidden


def _qwen2_5_vl() -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLTextModel

    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}
    config = Qwen2_5_VLConfig(text_config={**sizes, "rope_parameters": rope})
    return Qwen2_5_VLTextModel(config.text_config)


def _of(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        config = getattr(transformers, f"{name}Config")(**SIZES)
        return getattr(transformers, f"{name}Model")(config)

    return make


ENCODERS = (
    Encoder("Qwen2.5-VL", "QwenImage, HunyuanVideo 1.5, Kandinsky 5", _qwen2_5_vl),
    Encoder("Qwen3", "Z-Image, Flux 2 Klein", _of("Qwen3")),
    Encoder("Llama", "HunyuanVideo, HiDream", _of("Llama")),
    Encoder("Mistral", "Flux 2", _of("Mistral")),
)
# transformers lets it attend by its eager code only, since that caps the scores.
GEMMA2 = Encoder("Gemma2", "Sana, Lumina 2", _of("Gemma2"))
