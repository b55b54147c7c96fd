"""Restarts a running server with the user's shell command, so that each repeat measures a launch of its own.

A command may return before the old process has ended (`kill; nohup … &`), or leave it running by mistake. So the
metrics page is read before and after it. Where that page shows nothing (a plain OpenAI-compatible server, or one that
has served nothing yet), the first healthy answer counts as that of a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.dialects.dialect import EngineCounters, is_same_process
from specbench_client.dialects.registry import dialect_of
from specbench_client.drive.options import ClientOptions
from specbench_client.errors import EngineFailed
from specbench_client.local.engine_process import POLL_S, log_tail
from specbench_client.transport.control_client import ControlClient

ENDS_WITHIN_S = 60.0
"""How long the old process may still answer after the command: it may finish its requests first."""


async def restart_server(plan: Plan, arm: Arm, client: ClientOptions, log: Path, deadline_s: float) -> None:
    """Run the user's command, and wait until another process of the arm's server is healthy.

    `deadline_s`: of the command, and of the new process. Raises EngineFailed (NEVER_READY).
    """
    address, dialect = arm.endpoint.address if arm.endpoint else "", dialect_of(plan.engine_of(arm))
    variables = {"SPECBENCH_ARM": arm.name, "SPECBENCH_ENDPOINT": address}
    async with ControlClient(address, headers=client.headers) as control:

        async def counters() -> EngineCounters:
            return dialect.counters(await control.text_or_none(dialect.metrics_path) or "")

        try:
            before = await counters()
            await _run(client.restart_command or "", variables, log, deadline_s)
            async with asyncio.timeout(ENDS_WITHIN_S):
                while is_same_process(before, await counters()):  # noqa: ASYNC110 -- nothing reports its end
                    await asyncio.sleep(POLL_S)
            await control.wait_healthy(dialect.health_path, deadline_s, may_lack=True)
        except (EngineFailed, TimeoutError) as error:
            what = str(error) or f"the old process still answers {ENDS_WITHIN_S:g} s after it: correct the command"
            message = f"--restart-command for {arm.name} at {address}: {what}; the end of its output: {log_tail(log)}"
            raise EngineFailed(message, EngineReason.NEVER_READY) from error


async def _run(command: str, variables: dict[str, str], log: Path, deadline_s: float) -> None:
    """Run a shell command. Raises EngineFailed. A server that it starts may keep its output open, so that is a file.

    It has a session of its own: Ctrl-C must not end a server that it has started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_shell(
            command,
            env={**os.environ, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), deadline_s)
        code = process.returncode
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code != 0:
        too_long = f"it did not end within {deadline_s:g} s: it must return while the server runs (nohup … &)"
        raise EngineFailed(f"it ended with {code}: correct it" if code else too_long, EngineReason.NEVER_READY)
