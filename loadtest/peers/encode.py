"""How many times onnxruntime in f32 is our encoder, on the same weights, texts' length and threads, in one run?"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median

from common import (
    HERE,
    Ours,
    Rounds,
    Worker,
    deliver,
    environment,
    markdown_table,
    note,
    paired_ratios,
    ratio,
    spread,
)

TEXTS, TOKENS = 100, 200
BATCHES = (1, 8, 16, 32, 100)
ATTENTIONS = ("fused", "multihead", "plain")
# All texts in one call.
OUR_FIGURE = "encode-100"
GOAL = 3.0


@dataclass
class Contest:
    """Both sides and their samples."""

    ours: Ours
    worker: Worker
    threads: int
    repeats: int
    texts: list[str]
    our_rounds: list[list[float]] = field(default_factory=list)
    peer: Rounds = field(default_factory=Rounds)


def our_turn(contest: Contest) -> None:
    """One run of our command, over all texts in one call."""
    note("  riposte")
    report = contest.ours.bench("encode", "--threads", str(contest.threads), "--repeats", str(contest.repeats))
    samples = {figure["name"]: figure["samples"] for figure in report["figures"]}
    if OUR_FIGURE not in samples:
        raise SystemExit(f"riposte bench encode reports {', '.join(samples)}, and not {OUR_FIGURE}")
    contest.our_rounds.append(samples[OUR_FIGURE])


def peer_turn(contest: Contest) -> None:
    """onnxruntime with each form of the graph and each batch size."""
    note("  onnxruntime")
    request = {"texts": contest.texts, "tokens": TOKENS, "repeats": contest.repeats}
    for attention, batch in product(ATTENTIONS, BATCHES):
        samples = contest.worker.ask(op="measure", attention=attention, batch=batch, **request)
        contest.peer.add(f"{attention} attention, batch {batch}", samples)


def least_cosine(contest: Contest, work: Path) -> float:
    """The least similarity of our vectors and the peer's on the same texts; both are of unit length."""
    texts, vectors = work / "texts.txt", work / "vectors.jsonl"
    texts.write_text("".join(f"{text}\n" for text in contest.texts))
    files = ("--texts", str(texts), "--vectors", str(vectors))
    contest.ours.bench("encode", "--threads", str(contest.threads), "--repeats", "1", *files)
    mine = [json.loads(line) for line in vectors.read_text().splitlines()]
    theirs = contest.worker.ask(op="vectors", attention=ATTENTIONS[0], texts=contest.texts, tokens=TOKENS)
    return min(sum(a * b for a, b in zip(x, y, strict=True)) for x, y in zip(mine, theirs, strict=True))


def render(contest: Contest, ratios: list[float], cosine: float, about: dict[str, str]) -> str:
    """The report as Markdown."""
    ours = [sample for samples in contest.our_rounds for sample in samples]
    names = sorted(contest.peer.samples, key=contest.peer.median, reverse=True)
    rows = [["ours, all in one call", spread(ours, 1)]]
    rows += [[f"onnxruntime f32, {name}", spread(contest.peer.flat(name), 1)] for name in names]
    machine = contest.ours.reports[0].get("machine", {})
    reached = "reached" if median(ratios) >= GOAL else "not reached"
    lines = [
        "# MiniLM beside onnxruntime\n",
        f"Machine: {', '.join(f'{key} {value}' for key, value in machine.items())}.",
        f"Peer: onnxruntime {about['version']}, CPU provider, f32, every graph optimisation.",
        f"{TEXTS} texts of {TOKENS} tokens, {contest.threads} threads; {len(contest.our_rounds)} rounds of"
        f" {contest.repeats} samples, in turn. Median [min to max]; ratios are taken round by round.",
        f"The peer's process used at most {contest.ours.peer_cpu_share:.1%} of a core while ours ran.\n",
        markdown_table(["texts/s", "median"], rows),
        f"Ratio to its best: {ratio(ratios)}; the goal of {GOAL:g}x is {reached}.",
        f"Least cosine of our vectors and its own: {cosine:.6f}.",
    ]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--riposte", required=True, help="path of our release binary")
    parser.add_argument("--model", required=True, type=Path, help="folder of model.safetensors and tokenizer.json")
    parser.add_argument("--work", required=True, type=Path, help="folder for the peer's environment and files")
    parser.add_argument("--python", type=Path, help="a Python that has onnxruntime, in place of a new environment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="samples of a round")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument("--markdown", type=Path, help="write the report to this file")
    return parser.parse_args()


def open_peer(worker: Worker, model: Path, work: Path) -> list[str]:
    """Opens a session for each form of attention; returns the texts to embed."""
    for attention in ATTENTIONS:
        target = str(work / f"minilm-{attention}.onnx")
        worker.ask(op="open", model=str(model), target=target, tokens=TOKENS, attention=attention)
    pages = sorted(str(page) for page in (HERE.parents[1] / "docs" / "handbook").glob("[0-9]*.md"))
    return worker.ask(op="texts", sources=pages, count=TEXTS, tokens=TOKENS)


def main() -> None:
    """Prepares both sides, plays the rounds and reports."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    python = args.python or environment(args.work, "encode", "requirements-encode.txt", {}, [])
    worker = Worker(python, "onnx_worker.py", args.threads)
    about = worker.ask(op="about")
    texts = open_peer(worker, args.model, args.work)
    contest = Contest(Ours(args.riposte, worker), worker, args.threads, args.repeats, texts)
    for number in range(args.rounds):
        note(f"round {number + 1} of {args.rounds}")
        turns = [our_turn, peer_turn] if number % 2 == 0 else [peer_turn, our_turn]
        for turn in turns:
            turn(contest)
    cosine = least_cosine(contest, args.work)
    worker.close()
    best = contest.peer.best()
    if best is None:
        raise SystemExit("no round was played")
    ratios = paired_ratios(contest.our_rounds, contest.peer.samples[best])
    data = {
        "peer": about,
        "peer_cpu_share_while_ours_ran": contest.ours.peer_cpu_share,
        "ours": contest.our_rounds,
        "onnxruntime": contest.peer.samples,
        "best": best,
        "ratios": ratios,
        "least_cosine": cosine,
        "our_reports": contest.ours.reports,
    }
    deliver(render(contest, ratios, cosine, about), data, args.markdown, args.json)


if __name__ == "__main__":
    main()
