"""How many texts a second does onnxruntime embed in f32? Answers requests of encode.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from answering import answer_all
from bert_onnx import build

# The tokens that BERT puts around a text.
MARKERS = 2


class Bench:
    """A tokenizer and the sessions of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.sessions: dict[str, onnxruntime.InferenceSession] = {}
        self.tokenizer: Tokenizer | None = None

    def about(self) -> dict[str, str]:
        """The library's version and where it computes."""
        return {"version": onnxruntime.__version__, "providers": ", ".join(onnxruntime.get_available_providers())}

    def open(self, model: str, target: str, tokens: int, attention: str) -> None:
        """Builds the graph with that form of attention and opens a session on it."""
        folder = Path(model)
        build(folder / "model.safetensors", Path(target), tokens, attention)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Its threads would otherwise spin on after a call, into our turn.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.sessions[attention] = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def texts(self, sources: list[str], count: int, tokens: int) -> list[str]:
        """Texts of exactly `tokens` tokens, markers included, from the words of some files."""
        words = " ".join(Path(source).read_text() for source in sources).split()
        lengths = [len(e.ids) for e in self._tokenizer().encode_batch(words, add_special_tokens=False)]
        found, text, room = [], [], tokens - MARKERS
        for index in range(count * tokens * 2):
            word, length = words[index % len(words)], lengths[index % len(words)]
            if length <= room:
                text.append(word)
                room -= length
            if room == 0:
                found.append(" ".join(text))
                text, room = [], tokens - MARKERS
            if len(found) == count:
                self._ids(found, tokens)
                return found
        raise ValueError("the sources hold too few words")

    def measure(self, attention: str, texts: list[str], tokens: int, batch: int, repeats: int) -> list[float]:
        """Samples of texts a second over all texts, from text to vector, `batch` at a time."""
        self._embed(attention, texts[:batch], tokens, batch)
        samples = []
        for _ in range(repeats):
            start = time.perf_counter()
            self._embed(attention, texts, tokens, batch)
            samples.append(len(texts) / (time.perf_counter() - start))
        return samples

    def vectors(self, attention: str, texts: list[str], tokens: int) -> list[list[float]]:
        """The vectors of some texts."""
        return self._embed(attention, texts, tokens, len(texts)).tolist()

    def _embed(self, attention: str, texts: list[str], tokens: int, batch: int) -> np.ndarray:
        session = self.sessions[attention]
        parts = [
            session.run(None, {"ids": self._ids(texts[start : start + batch], tokens)})[0]
            for start in range(0, len(texts), batch)
        ]
        return np.concatenate(parts)

    def _ids(self, texts: list[str], tokens: int) -> np.ndarray:
        ids = [encoding.ids for encoding in self._tokenizer().encode_batch(texts)]
        if any(len(text) != tokens for text in ids):
            raise ValueError(f"a text has not exactly {tokens} tokens")
        return np.array(ids, dtype=np.int64)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError("no session was opened")
        return self.tokenizer


def main() -> None:
    """Answers until standard input closes."""
    bench = Bench(int(sys.argv[1]))
    operations = (bench.about, bench.open, bench.texts, bench.measure, bench.vectors)
    answer_all({operation.__name__: operation for operation in operations})


if __name__ == "__main__":
    main()
