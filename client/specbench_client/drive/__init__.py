"""The composition root of a measurement: one engine group driven into a store, and the run's answer made from it."""

from specbench_client.drive.conclude import conclude
from specbench_client.drive.group import GroupResult, drive_group
from specbench_client.drive.options import Clock, DriveOptions
from specbench_client.drive.progress import Progress

__all__ = ["Clock", "DriveOptions", "GroupResult", "Progress", "conclude", "drive_group"]
