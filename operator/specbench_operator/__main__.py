"""The entry point `specbench-operator`.

The operator's libraries are an optional extra. They are imported inside `main`, so that a missing one is reported in
one line instead of a traceback.
"""

from __future__ import annotations

import sys

EXTRA = ("kopf", "kubernetes", "prometheus_client", "cronsim")
NOT_INSTALLED = 2


def main() -> None:
    """Run until stopped. Exits with 2 if the extra is not installed or the settings are invalid."""
    try:
        from specbench_operator.app import run  # noqa: PLC0415 - see the module's docstring
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"specbench-operator: {error.name} is not installed: pip install 'WHEEL[operator]'\n")
        sys.exit(NOT_INSTALLED)
    run()


if __name__ == "__main__":
    main()
