#!/usr/bin/env python3
"""What do the models compute, exactly? Plain numpy forward passes in float64, written from the architectures' papers.

Independent of the project's code: GGUF tensors are decoded by the `gguf` package, text by `tokenizers`. Writes small
JSON fixtures beside this file. Needs: pip install numpy gguf tokenizers safetensors.

    exact_reference.py llm MODEL.gguf FIXTURE.json   adds exact top logits to a fixture of llama_cpp_reference.py
    exact_reference.py encoder MODEL_DIR OUT.json    sentence vectors of a BERT encoder
"""
import json
import sys

import numpy as np


def llm_logits(path, prompts):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    field = lambda key: reader.fields[key].contents()
    arch = field("general.architecture")
    get = lambda key: field(f"{arch}.{key}")
    tensors = {t.name: t for t in reader.tensors}

    def weight(name):
        t = tensors[name]
        return dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)]).astype(np.float64)

    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    dim = get("embedding_length") // heads
    eps, base = get("attention.layer_norm_rms_epsilon"), get("rope.freq_base")
    norm = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    def rotate(x, positions):  # x: token, head, dim
        freq = base ** (-2.0 * np.arange(dim // 2) / dim)
        angle = positions[:, None, None] * freq
        cos, sin = np.cos(angle), np.sin(angle)
        out = np.empty_like(x)
        if arch == "llama":  # pairs of neighbours
            a, b = x[..., 0::2], x[..., 1::2]
            out[..., 0::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
        else:  # pairs across the halves
            a, b = x[..., : dim // 2], x[..., dim // 2 :]
            out[..., : dim // 2], out[..., dim // 2 :] = a * cos - b * sin, a * sin + b * cos
        return out

    embedding = weight("token_embd.weight")
    states = [embedding[ids] for ids in prompts]
    for layer in range(get("block_count")):
        w = lambda name: weight(f"blk.{layer}.{name}")
        wq, wk, wv, wo = (w(f"attn_{n}.weight") for n in ("q", "k", "v", "output"))
        gate, up, down = (w(f"ffn_{n}.weight") for n in ("gate", "up", "down"))
        attn_norm, ffn_norm = w("attn_norm.weight")[None, :].ravel(), w("ffn_norm.weight").ravel()
        bias = [w(f"attn_{n}.bias").ravel() if f"blk.{layer}.attn_{n}.bias" in tensors else 0.0 for n in "qkv"]
        for i, x in enumerate(states):
            n = len(x)
            h = norm(x, attn_norm)
            q = (h @ wq.T + bias[0]).reshape(n, heads, dim)
            k = (h @ wk.T + bias[1]).reshape(n, kv_heads, dim)
            v = (h @ wv.T + bias[2]).reshape(n, kv_heads, dim)
            positions = np.arange(n, dtype=np.float64)
            q, k = rotate(q, positions), rotate(k, positions)
            k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
            score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
            score = np.where(np.tril(np.ones((n, n), bool)), score, -np.inf)
            p = np.exp(score - score.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            x = x + np.einsum("hij,jhd->ihd", p, v).reshape(n, -1) @ wo.T
            h = norm(x, ffn_norm)
            g = h @ gate.T
            states[i] = x + (g / (1 + np.exp(-g)) * (h @ up.T)) @ down.T
    output = weight("output.weight") if "output.weight" in tensors else embedding
    final = weight("output_norm.weight").ravel()
    return [norm(x[-1], final) @ output.T for x in states]


def llm(path, fixture):
    data = json.load(open(fixture))
    logits = llm_logits(path, [prompt["chat"]["ids"] for prompt in data["prompts"]])
    for prompt, row in zip(data["prompts"], logits):
        top = np.argsort(-row)[:40]
        prompt["chat"]["exact"] = [[int(i), round(float(row[i]), 6)] for i in top]
    data["exact_by"] = "exact_reference.py: numpy float64, weights as gguf.quants decodes them"
    json.dump(data, open(fixture, "w"), ensure_ascii=False, separators=(",", ":"))
    print(f"{fixture}: exact logits for {len(logits)} prompts")


TEXTS = [
    "A block holds sixteen tokens of keys and values.",
    "Was ist der Unterschied zwischen Prefill und Decode?",
    "TTFT",
    "The quick brown fox jumps over the lazy dog. " * 40,
    "naïve café — 日本語 🙂 x = a[0] + 3.14;",
]


def encoder(folder, out):
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    w = {k: v.astype(np.float64) for k, v in load_file(f"{folder}/model.safetensors").items() if v.dtype != np.int64}
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    from math import erf

    verf = np.vectorize(erf)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    linear = lambda x, name: x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        n = len(ids)
        e = "embeddings"
        x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][:n]
        x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
        layer = 0
        while (p := f"encoder.layer.{layer}") + ".output.dense.weight" in w:
            q, k, v = (linear(x, f"{p}.attention.self.{m}").reshape(n, -1, 32) for m in ("query", "key", "value"))
            score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(32)
            a = np.exp(score - score.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            mixed = np.einsum("hij,jhd->ihd", a, v).reshape(n, -1)
            x = norm(x + linear(mixed, f"{p}.attention.output.dense"), f"{p}.attention.output.LayerNorm")
            h = linear(x, f"{p}.intermediate.dense")
            h = h * 0.5 * (1 + verf(h / np.sqrt(2)))
            x = norm(x + linear(h, f"{p}.output.dense"), f"{p}.output.LayerNorm")
            layer += 1
        mean = x.mean(0)
        rows.append({"text": text, "tokens": n, "vector": [round(float(f), 7) for f in mean / np.linalg.norm(mean)]})
    json.dump({"made_by": "exact_reference.py: numpy float64", "texts": rows}, open(out, "w"), ensure_ascii=False)
    print(f"{out}: {len(rows)} vectors")


if __name__ == "__main__":
    {"llm": llm, "encoder": encoder}[sys.argv[1]](sys.argv[2], sys.argv[3])
