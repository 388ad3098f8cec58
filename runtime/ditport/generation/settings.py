"""All settings of a run. Importing this stays cheap: `ditport generate --help` does."""

from __future__ import annotations

from dataclasses import dataclass, field

from ditport.generation.attention import AttentionSettings
from ditport.generation.later import LaterSettings
from ditport.generation.request import SamplingSettings
from ditport.media.formats import OutputSettings
from ditport.models.compilation import CompilationSettings
from ditport.models.device import DeviceSettings
from ditport.models.lora import LoraSettings
from ditport.models.memory import MemorySettings
from ditport.models.precision import PrecisionSettings
from ditport.models.source import ModelSettings


@dataclass(frozen=True)
class Settings:
    """All that a user can say about a run."""

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    precision: PrecisionSettings = field(default_factory=PrecisionSettings)
    device: DeviceSettings = field(default_factory=DeviceSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    compilation: CompilationSettings = field(default_factory=CompilationSettings)
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    later: LaterSettings = field(default_factory=LaterSettings)
