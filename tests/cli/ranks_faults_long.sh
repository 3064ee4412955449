#!/usr/bin/env bash
# labels: long
# ranks_faults_long.sh — 50 moments of kill -9, and 20 at which a host is cut off.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
ROUNDS=50 bash "$here/ranks_faults.sh" "$1" && ROUNDS=20 bash "$here/ranks_hosts.sh" "$1"
