#!/usr/bin/env python3
"""How fast is llama.cpp on the same file and threads? Median prefill and decode rates through llama-cpp-python.

    llama_cpp_speed.py MODEL.gguf [THREADS]

Run it in turn with `cargo run --release -p exec --example speed -- MODEL.gguf [THREADS]`.
"""
import statistics
import sys
import time

from llama_cpp import Llama

threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
for flash in (False, True):
    llm = Llama(sys.argv[1], n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, n_ubatch=512,
                flash_attn=flash, verbose=False)
    tokens = [(i * 37) % 20000 for i in range(512)]

    def rate(count, repeats, run):
        rates = []
        for _ in range(repeats):
            began = time.perf_counter()
            run()
            rates.append(count / (time.perf_counter() - began))
        return f"{statistics.median(rates):8.1f} tokens/s  [{min(rates):.1f} to {max(rates):.1f}]"

    def prefill():
        llm.reset()
        llm.eval(tokens)

    def decode():
        for i in range(8):
            llm.eval([tokens[i]])

    prefill()
    name = "flash attention" if flash else "plain attention"
    print(f"llama.cpp prefill 512         {rate(512, 3, prefill)}  {name}")
    print(f"llama.cpp decode 1 at 512     {rate(8, 5, decode)}  {name}")
