"""One attention call, described without its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from polyattn.vocabulary import DType, MaskKind, Role


@dataclass(frozen=True)
class Grid:
    """The token grid of a video (or image: frames = 1) and where text tokens stand, if any.

    Sizes are in tokens, after patching; `text` counts the text tokens in the same sequence.
    """

    frames: int
    height: int
    width: int
    text: int = 0
    text_first: bool = False

    @property
    def tokens(self) -> int:
        """Video tokens, without text."""
        return self.frames * self.height * self.width

    def fits(self, sequence: int) -> bool:
        """Whether a sequence of this length is this grid, with its text."""
        return sequence == self.tokens + self.text

    def __str__(self) -> str:
        text = f" + {self.text} text tokens" if self.text else ""
        return f"{self.frames}x{self.height}x{self.width}{text}"


@dataclass(frozen=True)
class Site:
    """One place in a model where attention happens."""

    component: str  # name in model_index.json: "transformer", "vae", "text_encoder"
    path: str  # dotted module path within the component
    index: int  # position among the component's sites, in module order
    role: Role
    layer: int | None = None  # position among the component's self and joint sites

    def __str__(self) -> str:
        return f"{self.component}.{self.path}" if self.path else self.component


@dataclass(frozen=True)
class AttentionCall:
    """What a kernel is asked for. Lengths in tokens; `softmax_scale` None means head_dim**-0.5."""

    batch: int
    query_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: DType
    value_head_dim: int | None = None  # None: the same as head_dim
    mask: MaskKind = MaskKind.NONE
    causal: bool = False
    softmax_scale: float | None = None
    lse: bool = False
    device: int = 0
    site: Site | None = None
    grid: Grid | None = None
    first_steps: bool = False  # among the denoising steps that an option makes dense

    @property
    def role(self) -> Role:
        """The site's role; a call without a site is judged by its lengths."""
        if self.site is not None:
            return self.site.role
        return Role.SELF if self.query_len == self.kv_len else Role.CROSS
