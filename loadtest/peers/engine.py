"""How many times llama.cpp is our engine, on the same file, threads and machine, interleaved in one run?"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from common import (
    Ours,
    PeerError,
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
from figures import GROUPS, Figure, Group, goals_of

SHIPPED, REQUANTISED = "as shipped", "Q4_0"
OURS = "ours"


@dataclass
class Contest:
    """Everything that one run keeps: both sides, the lanes of the peer, and the samples so far."""

    ours: Ours
    worker: Worker
    threads: int
    repeats: int
    model: Path
    groups: list[Group]
    weights: dict[str, Path]
    lanes: dict[tuple[str, str, str], int] = field(default_factory=dict)
    our_samples: dict[str, Rounds] = field(default_factory=dict)
    peer_samples: dict[tuple[str, str], Rounds] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def prepare(contest: Contest) -> None:
    """Opens every lane before the first round, so that the rounds hold nothing but measurement."""
    for group in contest.groups:
        for label, path in contest.weights.items():
            for flags in group.flags:
                note(f"prepare {group.name}: {label}, {flags}")
                request = {"path": str(path), "flags": asdict(flags), "depths": group.depths, "room": group.room}
                try:
                    lane = contest.worker.ask(op="prepare", **request)
                except PeerError as error:
                    contest.notes.append(f"llama.cpp refused {group.name}, {label}, {flags}: {error}")
                    continue
                contest.lanes[group.name, label, str(flags)] = lane


def our_turn(contest: Contest, group: Group) -> None:
    """One run of our command over the figures of a group."""
    note(f"  riposte: {group.name}")
    only = [part for figure in group.figures for part in ("--only", figure.name)]
    threads, repeats = str(contest.threads), str(contest.repeats)
    report = contest.ours.bench(
        "engine", "--model", str(contest.model), "--threads", threads, "--repeats", repeats, *only
    )
    for figure in report["figures"]:
        contest.our_samples.setdefault(figure["name"], Rounds()).add(OURS, figure["samples"])


def peer_turn(contest: Contest, group: Group) -> None:
    """llama.cpp over the figures of a group, with each set of flags."""
    note(f"  llama.cpp: {group.name}")
    for figure in group.figures:
        for label in contest.weights:
            rounds = contest.peer_samples.setdefault((figure.name, label), Rounds())
            for name in map(str, group.flags):
                lane = contest.lanes.get((group.name, label, name))
                if lane is not None:
                    rounds.add(name, peer_samples(contest, figure, lane))


def peer_samples(contest: Contest, figure: Figure, lane: int) -> list[float]:
    """Samples of one figure from one lane."""
    key = "tokens" if figure.operation == "prefill" else "sequences"
    request = {"lane": lane, key: figure.argument, "repeats": contest.repeats}
    return contest.worker.ask(op=figure.operation, **request)


def play(contest: Contest, rounds: int) -> None:
    """All rounds; who goes first alternates from group to group and from round to round."""
    for number in range(rounds):
        for index, group in enumerate(contest.groups):
            note(f"round {number + 1} of {rounds}")
            turns = [our_turn, peer_turn] if (number + index) % 2 == 0 else [peer_turn, our_turn]
            for turn in turns:
                turn(contest, group)


def compare(contest: Contest, figure: str) -> dict[str, Any]:
    """One figure: both sides' samples, the peer's best flags for each file of weights, and the paired ratios."""
    ours = contest.our_samples.get(figure, Rounds()).samples.get(OURS, [])
    shares = [
        entry["peak_share"]
        for report in contest.ours.reports
        for entry in report["figures"]
        if entry["name"] == figure and entry.get("peak_share") is not None
    ]
    found: dict[str, Any] = {"name": figure, "unit": "tokens/s", "ours": ours, "peak_shares": shares, "peers": {}}
    for label in contest.weights:
        rounds = contest.peer_samples.get((figure, label), Rounds())
        best = rounds.best()
        entry: dict[str, Any] = {"best": best, "samples": rounds.samples}
        if best is not None and ours:
            entry["ratios"] = paired_ratios(ours, rounds.samples[best])
        found["peers"][label] = entry
    return found


def verdict(found: dict[str, Any], goals: dict[str, tuple[float, float | None]]) -> list[tuple[str, float, bool]]:
    """Each goal of a figure: against which weights, the least ratio, and whether the median reaches it."""
    wanted = dict(zip((SHIPPED, REQUANTISED), goals.get(found["name"], (None, None)), strict=True))
    return [
        (label, goal, median(found["peers"][label]["ratios"]) >= goal)
        for label, goal in wanted.items()
        if goal is not None and "ratios" in found["peers"].get(label, {})
    ]


def row(found: dict[str, Any], goals: dict[str, tuple[float, float | None]]) -> list[str]:
    """A line of the table."""
    cells = [found["name"], spread([s for samples in found["ours"] for s in samples]) if found["ours"] else "none"]
    shares = found["peak_shares"]
    cells.append(f"{median(shares):.0%}" if shares else "")
    for entry in found["peers"].values():
        best = entry["best"]
        values = [s for samples in entry["samples"].get(best, []) for s in samples]
        cells += [f"{spread(values)} ({best})" if values else "none"]
        cells += [ratio(entry["ratios"]) if "ratios" in entry else ""]
    verdicts = verdict(found, goals)
    cells.append(", ".join(f"{goal:g}x {label}" for label, goal, _ in verdicts))
    cells.append(", ".join("yes" if reached else "no" for _, _, reached in verdicts))
    return cells


def render(contest: Contest, founds: list[dict[str, Any]], about: dict[str, str], rounds: int) -> str:
    """The report as Markdown."""
    goals = goals_of(contest.model.name)
    header = ["tokens/s", OURS, "of peak"]
    for label in contest.weights:
        header += [f"llama.cpp {label}", "ratio"]
    machine = contest.ours.reports[0].get("machine", {})
    lines = [
        f"# {contest.model.name} beside llama.cpp\n",
        f"Machine: {', '.join(f'{key} {value}' for key, value in machine.items())}.",
        f"Peer: llama-cpp-python {about['version']}, {about['system']}",
        f"{contest.threads} threads; {rounds} rounds of {contest.repeats} samples, in turn. Median [min to max]; ratios"
        " are taken round by round. The peer's flags are its best for each figure.",
        f"The peer's process used at most {contest.ours.peer_cpu_share:.1%} of a core while ours ran.\n",
        markdown_table([*header, "goal", "reached"], [row(found, goals) for found in founds]),
    ]
    return "\n".join(lines + [f"- {line}" for line in contest.notes])


def requantised(worker: Worker, model: Path, work: Path) -> Path:
    """The model file in Q4_0, made by llama.cpp itself and kept."""
    target = work / f"{model.stem}.{model.stat().st_size}.Q4_0.gguf"
    if not target.exists():
        note(f"requantise to {target}")
        worker.ask(op="quantize", source=str(model), target=str(target))
    return target


def selected(only: list[str]) -> list[Group]:
    """The groups with the figures asked for, by name or by group; all of them when none is named."""
    groups = []
    for group in GROUPS:
        figures = [figure for figure in group.figures if not only or {figure.name, group.name} & set(only)]
        if figures:
            groups.append(Group(group.name, figures, group.depths, group.room, group.flags))
    return groups


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--riposte", required=True, help="path of our release binary")
    parser.add_argument("--model", required=True, type=Path, help="GGUF file that both sides run")
    parser.add_argument("--work", required=True, type=Path, help="folder for the peer's environment and files")
    parser.add_argument("--python", type=Path, help="a Python that has llama_cpp, in place of a new environment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="samples of a figure in a round")
    parser.add_argument("--only", action="append", default=[], help="a figure or a group; may be repeated")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument("--markdown", type=Path, help="write the report to this file")
    return parser.parse_args()


def main() -> None:
    """Prepares both sides, plays the rounds and reports."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    native = {"CMAKE_ARGS": "-DGGML_NATIVE=ON"}
    source = ["--no-binary", "llama-cpp-python"]
    python = args.python or environment(args.work, "engine", "requirements-engine.txt", native, source)
    worker = Worker(python, "llama_worker.py", args.threads)
    about = worker.ask(op="about")
    weights = {SHIPPED: args.model, REQUANTISED: requantised(worker, args.model, args.work)}
    ours, groups = Ours(args.riposte, worker), selected(args.only)
    contest = Contest(ours, worker, args.threads, args.repeats, args.model, groups, weights)
    prepare(contest)
    play(contest, args.rounds)
    worker.close()
    founds = [compare(contest, figure.name) for group in contest.groups for figure in group.figures]
    data = {
        "model": args.model.name,
        "peer": about,
        "peer_cpu_share_while_ours_ran": ours.peer_cpu_share,
        "figures": founds,
        "ours": ours.reports,
    }
    deliver(render(contest, founds, about, args.rounds), data, args.markdown, args.json)


if __name__ == "__main__":
    main()
