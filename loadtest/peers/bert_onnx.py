"""What does MiniLM look like as an ONNX graph, written the way onnxruntime likes it best?

The graph holds onnxruntime's own fused operations from the start (the ones its BERT optimizer arrives at), because
they decide its speed: attention in one node, skip connection with layer norm in one node, bias folded into each
matrix product. No mask: every text of the comparison has the same length, so the peer is spared that work.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

HEADS = 12
EPSILON = 1e-12
FUSED = "com.microsoft"


class Graph:
    """Nodes and constants, in the order in which they are computed.

    `attention` says how attention is written: `fused` is one node with its own QKV product; `multihead` takes the three
    products and has a flash kernel on CPUs; `plain` is standard operations, left to onnxruntime's optimizer.
    """

    def __init__(self, weights: dict[str, np.ndarray], attention: str) -> None:
        self.weights = weights
        self.attention = attention
        self.hidden = weights["embeddings.LayerNorm.weight"].shape[0]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        """A named constant, stored once."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, name: str) -> str:
        """A tensor of the file as it is."""
        return self.constant(name, self.weights[name])

    def node(self, kind: str, inputs: list[str], domain: str = "", **attributes: object) -> str:
        """Adds a node with one output and returns the output's name."""
        output = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def linear(self, x: str, name: str) -> str:
        """A dense layer over rows of tokens, bias included."""
        weight = self.constant(f"{name}.t", self.weights[f"{name}.weight"].T)
        return self.node("Gemm", [x, weight, self.weight(f"{name}.bias")])

    def norm(self, x: str, name: str) -> str:
        """Layer norm over the hidden width."""
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", [x, scale, shift], axis=-1, epsilon=EPSILON)

    def skip_norm(self, x: str, residual: str, name: str) -> str:
        """Layer norm of a sum."""
        if self.attention == "plain":
            return self.norm(self.node("Add", [x, residual]), name)
        inputs = [x, residual, self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.node("SkipLayerNormalization", inputs, FUSED, epsilon=EPSILON)

    def shaped(self, x: str, shape: list[int]) -> str:
        """The same numbers in another shape; 0 keeps a dimension, -1 takes the rest."""
        name = "shape_" + "_".join(map(str, shape))
        return self.node("Reshape", [x, self.constant(name, np.array(shape, dtype=np.int64))])

    def rows(self, x: str) -> str:
        """One row a token."""
        return self.shaped(x, [-1, self.hidden])


def embeddings(graph: Graph, tokens: int) -> str:
    """Rows of word, position and type embeddings, normed."""
    weights = graph.weights
    position = weights["embeddings.position_embeddings.weight"][:tokens]
    fixed = graph.constant("positions", position + weights["embeddings.token_type_embeddings.weight"][0])
    words = graph.node("Gather", [graph.weight("embeddings.word_embeddings.weight"), "ids"])
    return graph.norm(graph.rows(graph.node("Add", [words, fixed])), "embeddings.LayerNorm")


def attend(graph: Graph, x: str, name: str, tokens: int) -> str:
    """Self-attention over each text, from rows to rows."""
    parts = ["query", "key", "value"]
    if graph.attention == "fused":
        weight = np.concatenate([graph.weights[f"{name}.{part}.weight"].T for part in parts], axis=1)
        bias = np.concatenate([graph.weights[f"{name}.{part}.bias"] for part in parts])
        inputs = [graph.shaped(x, [-1, tokens, graph.hidden])]
        inputs += [graph.constant(f"{name}.qkv", weight), graph.constant(f"{name}.qkv_bias", bias)]
        return graph.rows(graph.node("Attention", inputs, FUSED, num_heads=HEADS))
    query, key, value = (graph.linear(x, f"{name}.{part}") for part in parts)
    if graph.attention == "multihead":
        inputs = [graph.shaped(part, [-1, tokens, graph.hidden]) for part in (query, key, value)]
        return graph.rows(graph.node("MultiHeadAttention", inputs, FUSED, num_heads=HEADS))
    return plain_attention(graph, [query, key, value], tokens)


def plain_attention(graph: Graph, projections: list[str], tokens: int) -> str:
    """Attention in standard operations."""
    dimension = graph.hidden // HEADS
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    query, key, value = (
        graph.node("Transpose", [graph.shaped(part, [-1, tokens, HEADS, dimension])], perm=order)
        for part, order in zip(projections, orders, strict=True)
    )
    scale = graph.constant("scale", np.array(math.sqrt(dimension), dtype=np.float32))
    scores = graph.node("Div", [graph.node("MatMul", [query, key]), scale])
    mixed = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), value])
    return graph.rows(graph.node("Transpose", [mixed], perm=[0, 2, 1, 3]))


def gelu(graph: Graph, x: str) -> str:
    """The exact GELU, as the model was trained."""
    return graph.node("Gelu", [x]) if graph.attention == "plain" else graph.node("Gelu", [x], FUSED)


def layer(graph: Graph, x: str, index: int, tokens: int) -> str:
    """One transformer layer over rows of tokens."""
    name = f"encoder.layer.{index}"
    mixed = graph.linear(attend(graph, x, f"{name}.attention.self", tokens), f"{name}.attention.output.dense")
    x = graph.skip_norm(mixed, x, f"{name}.attention.output.LayerNorm")
    up = gelu(graph, graph.linear(x, f"{name}.intermediate.dense"))
    return graph.skip_norm(graph.linear(up, f"{name}.output.dense"), x, f"{name}.output.LayerNorm")


def build(safetensors: Path, target: Path, tokens: int, attention: str) -> None:
    """Writes the graph for texts of exactly `tokens` tokens: ids of shape [texts, tokens] to unit-length vectors."""
    graph = Graph(load_file(safetensors), attention)
    x = embeddings(graph, tokens)
    layers = sum(name.endswith("attention.self.query.weight") for name in graph.weights)
    for index in range(layers):
        x = layer(graph, x, index, tokens)
    axes = graph.constant("axes", np.array([1], dtype=np.int64))
    mean = graph.node("ReduceMean", [graph.shaped(x, [-1, tokens, graph.hidden]), axes], keepdims=0)
    vectors = graph.node("LpNormalization", [mean], axis=-1, p=2)
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "minilm",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", tokens])],
            [helper.make_tensor_value_info(vectors, TensorProto.FLOAT, ["texts", graph.hidden])],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)],
        ir_version=9,
    )
    onnx.save(model, str(target))
