#!/usr/bin/env bash
# power.sh suspend|resume HOSTLIST: slurmctld runs it as slurm. It asks the daemon `power`, node by node.
set -euo pipefail

for node in $(scontrol show hostnames "$2"); do
    echo "$1 $node" | socat -t 30 - UNIX-CONNECT:/run/minicluster/power.sock
done
