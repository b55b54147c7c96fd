"""The process that judges answers: `python -m specbench_client.load.judge_child START`, from `judge_parent`.

It reads lines from stdin, first `answers` of the workload, then one line per answer, and replies to each with one line:
an empty one when it is ready, then the flaw of each answer, empty if nothing was found. It exits when stdin is closed.
START is a `JudgeStart`. Importing jsonschema and checking the schema take 1 to 2 s of CPU time.

Validation can take exponential time (`(a+)*` in a pattern, nested alternatives). The kernel ends this process when one
answer has taken more than MAX_JUDGING_CPU_S, in whatever code it is then.
"""

from __future__ import annotations

import json
import signal
import sys
from enum import StrEnum

from specbench_api.spec.answers import Answers
from specbench_client.cooperative_tasks import give_way_to_sockets
from specbench_client.dialects.engine_answer import EngineAnswer, RequestAcceptance, ToolCall
from specbench_client.load.answer_rules import unmet_demand

MAX_JUDGING_CPU_S = 1.0
"""CPU time, which other processes do not prolong. An answer of 10,000 small objects needs 0.4 s."""
LIMIT_SIGNAL = signal.SIGPROF
"""Ends a process that does not handle it."""


class JudgeStart(StrEnum):
    """At which priority the process becomes ready. It judges at the lower one."""

    NORMAL = "normal"
    """A load waits for it: on a busy machine, the lower priority would take a minute."""
    LOW = "low"
    """A load is measured, and only answers wait for it."""


def encode_answer(answer: EngineAnswer) -> bytes:
    """Return the line of an answer: what `unmet_demand` reads of it."""
    calls = [[call.name, call.arguments] for call in answer.tool_calls]
    return json.dumps([answer.text, answer.finish_reason, calls]).encode() + b"\n"


def _decode_answer(line: bytes) -> EngineAnswer:
    text, finish_reason, calls = json.loads(line)
    called = tuple(ToolCall(name, arguments) for name, arguments in calls)
    return EngineAnswer(text, (), RequestAcceptance(), finish_reason=finish_reason, tool_calls=called)


def _reply(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(start: JudgeStart) -> None:
    """Judge the answers of stdin."""
    if start is JudgeStart.LOW:
        give_way_to_sockets()
    signal.signal(LIMIT_SIGNAL, signal.SIG_DFL)
    answers = Answers.model_validate_json(sys.stdin.buffer.readline())
    _reply("")
    if start is JudgeStart.NORMAL:
        give_way_to_sockets()
    for line in sys.stdin.buffer:
        answer = _decode_answer(line)
        signal.setitimer(signal.ITIMER_PROF, MAX_JUDGING_CPU_S)
        flaw = unmet_demand(answers, None, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(flaw or "")


if __name__ == "__main__":
    main(JudgeStart(sys.argv[1]))
