#!/usr/bin/env bash
# Runs inside the cluster's namespace: its init, and the commands that start and stop the daemons.
# Usage: guest.sh init HOST_PID | up | down | kill DAEMON | start DAEMON | stop DAEMON | stall DAEMON | resume DAEMON
#        guest.sh power <<<"suspend|resume NODE"
set -euo pipefail

SITE=/opt/infill/slurm
MINI=$SITE/minicluster
STATE=/run/minicluster
LOGS=/var/log/minicluster
readonly SITE MINI STATE LOGS

# Further arguments of slurmd: see change_power.
SLURMD_OPTIONS=()

# shellcheck source-path=SCRIPTDIR source=common.sh
. "$MINI/lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=daemons.sh
. "$MINI/lib/daemons.sh"
# shellcheck source-path=SCRIPTDIR source=site.sh
. "$MINI/lib/site.sh"
# shellcheck source-path=SCRIPTDIR source=settings.sh
. "$MINI/lib/settings.sh"
# shellcheck disable=SC1091
. "$STATE/env"

# Process 1: adopts and reaps orphans until it is killed. bash reaps every child while it waits for one.
run_init() {
    trap 'exit 0' TERM INT
    echo "$1" >"$STATE/ready"
    while :; do
        sleep 3600 &
        wait "$!" || true
    done
}

# slurmctld refuses to start when a partition names a QOS that is not in the database. So accounts come first.
bring_up() {
    local i
    make_site
    ! uses_munge || start munged
    start mariadbd
    start slurmdbd
    make_accounts
    start slurmctld
    save_state
    for ((i = 1; i <= NODES; i++)); do launch "slurmd:n$i"; done
    if [[ $BARE = no ]]; then
        start slurmrestd
        start relay
    fi
    ! saves_power || start power
    wait_for_nodes
}

# slurmctld saves its state minutes later. If it is killed before, slurmctld 26.05 refuses to start again.
# Reconfiguring saves the state now. On a busy machine the answer may come after the client's time-out, so only the
# saved state counts.
save_state() {
    wait_until 45 reconfigure || {
        explain_failure slurmctld
        return 1
    }
    await slurmctld
}

reconfigure() {
    timeout 10 scontrol reconfigure || true
    wait_until 10 test -s /var/spool/minicluster/ctld/assoc_usage
}

wait_for_nodes() {
    wait_until 40 all_nodes_idle && return
    say "nodes are not all idle:"
    timeout 5 sinfo -N -h -o '  %N %T %E' >&2 || true
    local i
    for ((i = 1; i <= NODES; i++)); do
        is_running "slurmd:n$i" || explain_failure "slurmd:n$i"
    done
    return 1
}

all_nodes_idle() {
    local idle
    idle=$(timeout 5 sinfo -h -N -p main -t idle -o %N | sort -u | wc -l)
    ((idle == NODES))
}

# A line of SuspendProgram or ResumeProgram. A woken node says that it has just booted: slurmctld waits for that.
change_power() {
    local what node
    read -r what node
    check_daemon_name "slurmd:$node"
    echo "$EPOCHREALTIME $what $node" >>"$LOGS/power.log"
    case $what in
    suspend) kill_daemon "node:$node" ;;
    resume)
        SLURMD_OPTIONS=(-b)
        launch "slurmd:$node"
        ;;
    esac
}

# Slurm's own order: clients first, servers last. The database needs no clean end, because it is thrown away.
bring_down() {
    local i clients=(power relay slurmrestd slurmrestd-jwt)
    for ((i = 1; i <= NODES; i++)); do clients+=("slurmd:n$i"); done
    stop_all 5 "${clients[@]}" && stop_all 5 slurmctld && stop_all 3 slurmdbd
}

main() {
    local command=$1
    shift
    case $command in
    init) run_init "$@" ;;
    up) bring_up ;;
    down) bring_down ;;
    kill) kill_daemon "$@" ;;
    start) start_daemon "$@" ;;
    stop) stop_all 5 "$@" ;;
    stall) signal_daemon STOP "$@" ;;
    resume) signal_daemon CONT "$@" ;;
    power) change_power >>"$LOGS/power.out" 2>&1 ;;
    *) die "guest.sh: unknown command $command" ;;
    esac
}

main "$@"
