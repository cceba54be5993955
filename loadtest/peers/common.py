"""What do both comparisons share: the peer's environment and process, our own command, and the arithmetic of rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent


class PeerError(Exception):
    """The peer refused a request, for example a set of flags that its build lacks."""


def note(text: str) -> None:
    """A line about progress, beside the results."""
    print(text, file=sys.stderr, flush=True)


def environment(work: Path, name: str, requirements: str, pip_env: dict[str, str], pip_args: list[str]) -> Path:
    """The Python of a virtual environment below `work`, made once for each content of the requirements file."""
    wanted = (HERE / requirements).read_text()
    home = work / f"{name}-venv"
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    note(f"installing {requirements} into {home}; this may compile for minutes")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    install = [str(python), "-m", "pip", "install", "-q", *pip_args, "-r", str(HERE / requirements)]
    subprocess.run(install, check=True, env={**os.environ, **pip_env})
    stamp.write_text(wanted)
    return python


class Worker:
    """A peer in a process of its own, which answers one JSON line with one JSON line."""

    def __init__(self, python: Path, script: str, threads: int) -> None:
        command = [str(python), str(HERE / script), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> Any:
        """The answer to a request; `PeerError` when the peer says no."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended during {request}; exit status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["result"]

    def cpu_seconds(self) -> float:
        """Processor time that all threads of the process have used; zero where /proc is missing."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


@dataclass
class Ours:
    """Our own command, and how idle the peer was while it ran."""

    riposte: str
    worker: Worker
    peer_cpu_share: float = 0.0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def bench(self, *arguments: str) -> dict[str, Any]:
        """The report of one `riposte bench` run, as JSON."""
        command = [self.riposte, "bench", *arguments, "--json", "-"]
        before, start = self.worker.cpu_seconds(), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        elapsed = time.perf_counter() - start
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        self.peer_cpu_share = max(self.peer_cpu_share, (self.worker.cpu_seconds() - before) / elapsed)
        report = json.loads(done.stdout)
        self.reports.append(report)
        return report


@dataclass
class Rounds:
    """Samples of one figure: for each contender, a list for each round."""

    samples: dict[str, list[list[float]]] = field(default_factory=dict)

    def add(self, contender: str, samples: list[float]) -> None:
        """A round's samples."""
        self.samples.setdefault(contender, []).append(samples)

    def best(self) -> str | None:
        """The contender with the highest median.

        None is left out after a slow round: on a machine with other work the best one may look slow once.
        """
        return max(self.samples, key=self.median, default=None)

    def median(self, contender: str) -> float:
        """Median over every sample of every round."""
        return median(self.flat(contender))

    def flat(self, contender: str) -> list[float]:
        """Every sample of every round."""
        return [sample for samples in self.samples[contender] for sample in samples]


def paired_ratios(ours: list[list[float]], peer: list[list[float]]) -> list[float]:
    """Ours over the peer's, round by round: drift of the machine hits both sides of a round alike."""
    return [median(mine) / median(theirs) for mine, theirs in zip(ours, peer, strict=False)]


def spread(values: list[float], digits: int = 0) -> str:
    """Median and range of some values."""
    return f"{median(values):,.{digits}f} [{min(values):,.{digits}f} to {max(values):,.{digits}f}]"


def ratio(values: list[float]) -> str:
    """Median and range of some ratios."""
    return f"{median(values):.2f}x [{min(values):.2f} to {max(values):.2f}]"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with even columns, to be read in a terminal as well."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"| {line} |\n" for line in padded)


def deliver(text: str, data: dict[str, Any], markdown: Path | None, json_path: Path | None) -> None:
    """Prints the text, and writes the files that were asked for."""
    print(text)
    if markdown is not None:
        markdown.write_text(text)
    if json_path is not None:
        json_path.write_text(json.dumps(data, indent=2) + "\n")
