"""What is compared with llama.cpp, with which of its flags, and what are the goals?"""

from __future__ import annotations

from dataclasses import dataclass

DECODE_CONTEXT = 512
DECODE_BATCHES = (1, 4, 8, 16, 32)
DEPTHS = (0, 512, 2048, 4096)
# Room behind a history for the tokens of one timed decode; llama.cpp rounds contexts up to a multiple of it.
ROOM_TOKENS = 256


@dataclass(frozen=True)
class Flags:
    """llama.cpp's settings for one context."""

    flash: bool
    ubatch: int = 512
    keys: str = "f16"
    values: str = "f16"

    def __str__(self) -> str:
        parts = [f"fa {'on' if self.flash else 'off'}"]
        if self.ubatch != 512:
            parts.append(f"ub {self.ubatch}")
        if self.keys != "f16":
            parts.append(f"k {self.keys}")
        if self.values != "f16":
            parts.append(f"v {self.values}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Figure:
    """One figure of `riposte bench engine` and the same thing asked of the llama.cpp worker."""

    name: str
    operation: str
    argument: int | list[int]


@dataclass(frozen=True)
class Group:
    """Figures that share a lane of the worker: its histories, its room a sequence, the flags worth trying."""

    name: str
    figures: list[Figure]
    depths: list[int]
    room: int
    flags: list[Flags]


# Quantised values need flash attention in llama.cpp; quantised keys alone do not.
GROUPS = [
    Group(
        name="prefill",
        figures=[Figure(f"prefill-{tokens}", "prefill", tokens) for tokens in (128, 512, 2048)],
        # A short history to warm up with; each prefill begins by clearing it.
        depths=[256],
        room=2048,
        flags=[Flags(flash, ubatch) for flash in (False, True) for ubatch in (512, 256, 128)],
    ),
    Group(
        name="decode",
        figures=[Figure(f"decode-{batch}", "decode", list(range(batch))) for batch in DECODE_BATCHES],
        depths=[DECODE_CONTEXT] * max(DECODE_BATCHES),
        room=DECODE_CONTEXT + ROOM_TOKENS,
        flags=[Flags(False), Flags(True)],
    ),
    Group(
        name="depth",
        figures=[Figure(f"depth-{depth}", "decode", [sequence]) for sequence, depth in enumerate(DEPTHS)],
        # A decode needs some history, so depth 0 is one token.
        depths=[max(depth, 1) for depth in DEPTHS],
        room=max(DEPTHS) + ROOM_TOKENS,
        flags=[Flags(False), Flags(False, keys="q8_0"), Flags(True), Flags(True, keys="q8_0", values="q8_0")],
    ),
]

# Least ratio to llama.cpp by part of the model file's name, then by figure: on the file as shipped, and on the file
# requantised to Q4_0.
GOALS = {
    "smollm2-135m": {
        "prefill-512": (10.0, 3.0),
        "decode-1": (2.0, None),
        "decode-8": (5.0, None),
        "decode-32": (6.0, None),
        "depth-4096": (4.0, None),
    },
    "qwen2.5-coder-0.5b": {
        "prefill-512": (5.0, None),
        "decode-1": (1.8, None),
        "decode-8": (5.0, None),
        "decode-32": (6.0, None),
        "depth-4096": (4.0, None),
    },
}


def goals_of(model_file: str) -> dict[str, tuple[float, float | None]]:
    """The goals for a model file; none for a model without goals."""
    name = model_file.lower()
    return next((goals for part, goals in GOALS.items() if part in name), {})
