"""`python -m specbench_client.job` is `specbench-client`."""

from specbench_client.job import main

main()
