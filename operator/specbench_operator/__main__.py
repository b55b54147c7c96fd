"""The entry point. The operator's libraries are an extra: where they are missing, that is said in one line.

Nothing of them is imported up here, so that there is somebody to say it.
"""

from __future__ import annotations

import sys

EXTRA = ("kopf", "kubernetes", "prometheus_client", "cronsim")
NOT_INSTALLED = 2


def main() -> None:
    """Run until told to stop. Exits with 2 where the extra is not installed or the settings cannot be used."""
    try:
        from specbench_operator.operate import run  # noqa: PLC0415  see above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"specbench-operator: {error.name} is not installed: pip install 'specbench[operator]'\n")
        sys.exit(NOT_INSTALLED)
    run()


if __name__ == "__main__":
    main()
