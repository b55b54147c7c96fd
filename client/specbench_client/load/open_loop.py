"""The open loop: conversations begin when the schedule says so, whatever the others do.

So a slow engine is not spared: requests that it would have had to serve do not wait for it to be ready, and their
latency counts from the moment at which they were to be sent, also where the client itself was late. The later turns of
a conversation are intended at the end of the answer before: a user does not ask on before he has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_client.load.alarm import Alarm
from specbench_client.load.phases import Phases
from specbench_client.load.talk import Seat, Talk
from specbench_client.load.tasks import first_failure
from specbench_client.load.tray import Tray


@dataclass(frozen=True)
class OpenLoop:
    """One worker's conversations. `offsets_ns`: when each is intended, from the begin; the tray has their order."""

    offsets_ns: Sequence[int]
    talk: Talk
    tray: Tray
    phases: Phases
    alarm: Alarm

    async def run(self, begin_ns: int) -> None:
        """Begin all in time and see all to their end. Cancelling it abandons the open requests."""
        self.phases.started(begin_ns)
        async with first_failure(), asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(self.tray.keep_filled())
            async with asyncio.TaskGroup() as conversations:
                for offset_ns in self.offsets_ns:
                    intended_ns = begin_ns + offset_ns
                    await self.alarm.until(intended_ns)
                    opening = self.tray.take()
                    assert opening is not None, "there is a conversation for each time"
                    seat = Seat(opening.conversation.index, intended_ns)
                    conversations.create_task(self.talk.hold(opening, seat))
            filling.cancel()
