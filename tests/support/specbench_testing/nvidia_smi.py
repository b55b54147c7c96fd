"""Outputs of nvidia-smi, written from its documentation (not recorded)."""

PAIR = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-47\t0\tN/A
GPU1\tNV18\t X \tSYS\t0-47\t0\tN/A
NIC0\tPIX\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
MIXED = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV4\tSYS\t0\nGPU1\tNV4\t X \tSYS\t0\nGPU2\tSYS\tSYS\t X \t0\n"
SINGLE = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n"
HEAD = "| NVIDIA-SMI 570.133.20     Driver Version: 570.133.20     CUDA Version: 12.8     |"
