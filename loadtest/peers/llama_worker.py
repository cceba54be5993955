"""How fast is llama.cpp at one figure? Answers requests of engine.py, timed the way llama-bench and
llama-batched-bench do it, through the library's own calls.

A lane is one llama context: one file of weights, one set of flags, and sequences filled to given depths. Lanes stay
open between rounds, so that a long context is computed once.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp as llama

from answering import answer_all

BATCH_TOKENS = 2048
STEPS_MIN = 8
SECONDS_MIN = 0.3
# Of ggml.h; the Python package does not name them.
GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR = 3, 4
KV_TYPES = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}

_ERRORS: list[str] = []


@llama.llama_log_callback
def _keep_errors(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    if level in (GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR):
        _ERRORS.append(text.decode(errors="replace").strip())


def failure(what: str) -> RuntimeError:
    """An error with what the library logged since the last one."""
    reasons = "; ".join(_ERRORS)
    _ERRORS.clear()
    return RuntimeError(f"{what}: {reasons or 'no reason logged'}")


class Lane:
    """A context of `room` tokens a sequence, with `depths[i]` tokens of computed history in sequence i."""

    def __init__(self, model: Any, threads: int, flags: dict[str, Any], depths: list[int], room: int) -> None:
        self.depths, self.room = depths, room
        self.vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self.random = random.Random(4)
        self.batch = llama.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.context = llama.llama_init_from_model(model, self._params(threads, flags))
        if not self.context:
            raise failure("no context")
        self.memory = llama.llama_get_memory(self.context)
        self._fill()

    def _params(self, threads: int, flags: dict[str, Any]) -> Any:
        params = llama.llama_context_default_params()
        params.n_ctx = self.room * len(self.depths)
        params.n_seq_max = len(self.depths)
        params.n_outputs_max = len(self.depths)
        params.n_batch = BATCH_TOKENS
        params.n_ubatch = flags["ubatch"]
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flags["flash"])
        params.type_k, params.type_v = KV_TYPES[flags["keys"]], KV_TYPES[flags["values"]]
        # A stream of cells for each sequence; one shared buffer would make every row look at every sequence.
        params.kv_unified = False
        params.no_perf = True
        return params

    def _fill(self) -> None:
        """Computes the deepest history once and copies it to the other sequences, each with cells of its own."""
        deepest = max(self.depths)
        self._prompt(deepest)
        for sequence in range(1, len(self.depths)):
            llama.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        for sequence, depth in enumerate(self.depths):
            llama.llama_memory_seq_rm(self.memory, sequence, depth, -1)
        # The copies are made by the next decode, which must not be a timed one.
        self._steps(list(range(len(self.depths))), steps_min=1, seconds_min=0.0)

    def prefill(self, tokens: int) -> float:
        """Tokens a second of one prompt into an empty context."""
        llama.llama_memory_clear(self.memory, False)
        start = time.perf_counter()
        self._prompt(tokens)
        return tokens / (time.perf_counter() - start)

    def decode(self, sequences: list[int]) -> float:
        """Tokens a second over all `sequences`, one token each a step, each from its own depth."""
        self._steps(sequences, steps_min=1, seconds_min=0.0)
        steps, seconds = self._steps(sequences, STEPS_MIN, SECONDS_MIN)
        return steps * len(sequences) / seconds

    def _prompt(self, tokens: int) -> None:
        for start in range(0, tokens, BATCH_TOKENS):
            count = min(BATCH_TOKENS, tokens - start)
            for index in range(count):
                self._put(index, 0, start + index, wanted=start + index == tokens - 1)
            self._run(count)

    def _steps(self, sequences: list[int], steps_min: int, seconds_min: float) -> tuple[int, float]:
        """Decodes until both minima are passed or the room is used, then forgets the new tokens."""
        steps, start = 0, time.perf_counter()
        while steps < steps_min or time.perf_counter() - start < seconds_min:
            if max(self.depths[sequence] for sequence in sequences) + steps == self.room:
                break
            for index, sequence in enumerate(sequences):
                self._put(index, sequence, self.depths[sequence] + steps, wanted=True)
            self._run(len(sequences))
            steps += 1
        seconds = time.perf_counter() - start
        for sequence in sequences:
            llama.llama_memory_seq_rm(self.memory, sequence, self.depths[sequence], -1)
        return steps, seconds

    def _put(self, index: int, sequence: int, position: int, *, wanted: bool) -> None:
        batch = self.batch
        batch.token[index] = self.random.randrange(self.vocab_size)
        batch.pos[index] = position
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = sequence
        batch.logits[index] = wanted

    def _run(self, count: int) -> None:
        self.batch.n_tokens = count
        if llama.llama_decode(self.context, self.batch) != 0:
            raise failure("decode")
        llama.llama_synchronize(self.context)


class Bench:
    """The models and lanes of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.models: dict[str, Any] = {}
        self.lanes: list[Lane] = []

    def about(self) -> dict[str, str]:
        """The library's version and the instructions that it was built for."""
        system = llama.llama_print_system_info().decode()
        return {"version": llama.__version__, "system": system.strip()}

    def quantize(self, source: str, target: str) -> None:
        """Writes the file in Q4_0, the weights that llama.cpp repacks for this processor."""
        params = llama.llama_model_quantize_default_params()
        params.ftype = llama.LLAMA_FTYPE_MOSTLY_Q4_0
        params.allow_requantize = True
        params.nthread = self.threads
        part = Path(target + ".part")
        if llama.llama_model_quantize(source.encode(), str(part).encode(), ctypes.byref(params)) != 0:
            raise failure(f"quantize {source}")
        part.rename(target)

    def prepare(self, path: str, flags: dict[str, Any], depths: list[int], room: int) -> int:
        """Opens a lane and returns its number."""
        if path not in self.models:
            model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
            if not model:
                raise failure(f"load {path}")
            self.models[path] = model
        self.lanes.append(Lane(self.models[path], self.threads, flags, depths, room))
        return len(self.lanes) - 1

    def prefill(self, lane: int, tokens: int, repeats: int) -> list[float]:
        """Samples of a prefill, in tokens a second."""
        return [self.lanes[lane].prefill(tokens) for _ in range(repeats)]

    def decode(self, lane: int, sequences: list[int], repeats: int) -> list[float]:
        """Samples of a decode, in tokens a second."""
        return [self.lanes[lane].decode(sequences) for _ in range(repeats)]


def main() -> None:
    """Answers until standard input closes."""
    llama.llama_log_set(_keep_errors, ctypes.c_void_p(0))
    llama.llama_backend_init()
    bench = Bench(int(sys.argv[1]))
    operations = (bench.about, bench.quantize, bench.prepare, bench.prefill, bench.decode)
    answer_all({operation.__name__: operation for operation in operations})


if __name__ == "__main__":
    main()
