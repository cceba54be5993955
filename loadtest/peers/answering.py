"""How does a worker read its requests and write its answers?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def answer_all(operations: dict[str, Callable[..., Any]]) -> None:
    """Answers JSON lines on standard input until it closes; each names its operation in `op`.

    Libraries below may print: their standard output goes to standard error, so that it cannot mix with the answers.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": operations[request.pop("op")](**request)}
        except Exception as error:  # Each library has its own; the asker decides what a failure means.
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
