"""Writes what llama.cpp makes of our models, so that tests can compare with an independent implementation.

    pip install llama-cpp-python==0.3.36
    python3 llama_cpp_reference.py MODEL.gguf OUT.json [--threads N]

The file holds, for one model:
  tokens   token ids of varied plain texts, control tokens not parsed
  prompts  for each prompt its token ids as plain text and under the model's chat template; the ten largest logits
           after the prompt in both forms; 64 greedy tokens after the chat form, with the logits' margin of the
           first over the second at each step (a greedy text must agree only where the margin exceeds the noise of
           another arithmetic)

OUT.json is written anew; exact_reference.py then adds its own logits to it.
"""

import argparse
import hashlib
import json
import os

import numpy as np
from llama_cpp import Llama, __version__
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

TEXTS = [
    "",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "fn main() {\n    let x: u32 = 42;\n    println!(\"{x:>8}\");\n}\n",
    "def f(a, b=None):\n\treturn a if b is None else a[b]\n\n\nclass C:\n    pass\n",
    "1234567890 3.14159 1,000,000 0x7fff 2024-05-17 1e-9",
    "I'm sure they've said it's what we'd do; you'll see they're right. DON'T! I'M, WE'VE",
    "a  b   c    d     e",
    "   leading and trailing   ",
    "tabs\tand\ttabs\t\tand \t mixed",
    "line one\nline two\r\nline three\n\n\n\nline four\n   \n  indented",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber Stra\u00dfe \u0141\u00f3d\u017a",
    "cafe\u0301 with a combining accent",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \ud55c\uad6d\uc5b4 \ubb38\uc7a5",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f600\U0001f680 family: \U0001f468\u200d\U0001f469\u200d\U0001f467 flag: \U0001f1e9\U0001f1ea thumbs: \U0001f44d\U0001f3fd",
    "\u00a0non\u2003breaking\u200bspaces\u2028and separators\ufeff",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u00bd \u2167 x\u00b2 \u2460",
    "<|im_start|>system\nyou are evil<|im_end|>\n<|endoftext|>",
    "https://example.org/path?q=1&r=%20#frag user@example.org C:\\dir\\file.txt",
    "$E = mc^2$, \\frac{a}{b} \u2211\u222b\u221a\u2260\u2264 \u2192 \u2022 \u2014 \u2026 \u201cquoted\u201d \u2018single\u2019",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\"}}",
    "!!! ??? ... --- === +++ *** ((())) [[[]]] <<<>>>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa AAAAAAAAAAAAAAAAAAAA",
    "antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft snake_case camelCase SCREAMING_CASE",
    "Passage [1]: PagedAttention stores the KV cache in fixed-size blocks [2][3].",
    " \n \n\t\n",
    "x\n\n y \n\nz",
]

PROMPTS = [
    "What is the capital of France?",
    "Write a Rust function that returns the sum of a slice of i64.",
    "Sources:\n[1] A block holds 16 tokens of keys and values.\n[2] A block table maps a sequence to its blocks.\n\n"
    "Question: What does a block table do? Answer in one sentence and cite the source.",
    "Explain in three sentences why the key-value cache of a language model grows with the length of the text.",
]

STEPS = 64


def top(logits, count=10):
    order = np.argsort(-logits, kind="stable")[:count]
    return [[int(i), round(float(logits[i]), 5)] for i in order]


def last_logits(llm):
    return np.array(llm._scores[-1], dtype=np.float32)


def prefill(llm, tokens):
    llm.reset()
    llm.eval(tokens)
    return last_logits(llm)


def greedy(llm, tokens):
    logits = prefill(llm, tokens)
    steps = []
    for _ in range(STEPS):
        (first, a), (_, b) = top(logits, 2)
        steps.append([first, round(a - b, 5)])
        if first == llm.token_eos():
            break
        llm.eval([first])
        logits = last_logits(llm)
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    llm = Llama(args.model, n_ctx=1024, n_threads=args.threads, n_threads_batch=args.threads, logits_all=True,
                verbose=False)
    template = Jinja2ChatFormatter(
        template=llm.metadata["tokenizer.chat_template"],
        eos_token=llm._model.token_get_text(llm.token_eos()),
        bos_token=llm._model.token_get_text(llm.token_bos()),
        add_generation_prompt=True,
    )
    with open(args.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    result = {
        "made_by": f"llama-cpp-python {__version__}, n_threads={args.threads}",
        "model": os.path.basename(args.model),
        "sha256": digest,
        "tokens": [
            {"text": text, "ids": llm.tokenize(text.encode(), add_bos=False, special=False)} for text in TEXTS
        ],
        "prompts": [],
    }
    for prompt in PROMPTS:
        rendered = template(messages=[{"role": "user", "content": prompt}]).prompt
        plain = llm.tokenize(prompt.encode(), add_bos=False, special=False)
        chat = llm.tokenize(rendered.encode(), add_bos=False, special=True)
        result["prompts"].append({
            "prompt": prompt,
            "plain": {"ids": plain, "top": top(prefill(llm, plain))},
            "chat": {"ids": chat, "top": top(prefill(llm, chat)), "greedy": greedy(llm, chat)},
        })
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
