"""The section of docs/metrics.md on energy: its figures, and what a file of power samples must hold."""

from __future__ import annotations

from specbench_client.metrics import energy

ENERGY = f"""## Energy

Engines tell no power, and the client sees no GPU: samples come from beside the run, as a file.

```console
$ TZ=UTC nvidia-smi --query-gpu=timestamp,uuid,power.draw --format=csv -lms 500 --id=0,1 > power.csv    # on the node
$ specbench report specbench-results --latest --recompute --power power.csv
```

| form | what counts |
|---|---|
| nvidia-smi's CSV | `timestamp`, `power.draw [W]` (or `.average`, `.instant`), and `uuid`, `index` or `pci.bus_id` |
| any CSV with a first line of names | `time` or `timestamp`, `watts`, and `device` or `gpu` where there are several |
| Prometheus' JSON of a range query, as of DCGM's `DCGM_FI_DEV_POWER_USAGE` | each series a device |

A time is seconds since 1970, or a date with its zone; without one it is taken as UTC. The file holds **the devices of
the engine and no others**: all of them are added up, idle ones too. With `--recompute` the samples are kept as
`power.csv` beside the results and are read again whenever the answer is made anew; without it they are used once.

A figure has no value where samples leave out any part of the steady window of any point of its cell: before the first
or after the last of a device, or with a gap of more than {energy.GAP_SHARE:.0%} of the window and more than
{energy.GAP_MIN_S:g} s. Why stands at the end of the figure's definition, and is said on stderr. What is left open: the
node's clock and the client's must agree far better than a window is long; power is the device's own sensor's (an
average over some time on most GPUs; CPU, memory and fans are not in it); and joules are held against the output tokens
of the window, so what prompts cost is in them.
"""


def energy_rows() -> list[tuple[str, str, str, str, str]]:
    """Its figures, as the tables of the page have them."""
    return [
        (f"`{energy.JOULES}`", energy.JOULES_UNIT, energy.JOULES_DEFINITION, energy.JOULES_MISSING, energy.SOURCE),
        (f"`{energy.WATTS}`", energy.WATTS_UNIT, energy.WATTS_DEFINITION, energy.WATTS_MISSING, energy.SOURCE),
    ]
