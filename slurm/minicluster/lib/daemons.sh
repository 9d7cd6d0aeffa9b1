# shellcheck shell=bash
# Each daemon of the cluster: how it is started, as which user, and how to check that it answers. A daemon NAME runs
# in the foreground of its own session. STATE/NAME.pid holds its pid, LOGS its log.

REST_SOCKET=/run/infill/slurmrestd.sock
HOST_SOCKET=/run/infill/host.sock
POWER_SOCKET=/run/minicluster/power.sock
readonly REST_SOCKET HOST_SOCKET POWER_SOCKET

# start NAME: starts it and waits until it answers.
start() {
    launch "$1"
    await "$1"
}

launch() {
    local name=$1
    case $name in
    munged) spawn "$name" munge munged --foreground ;;
    mariadbd) spawn "$name" mysql mariadbd "${MARIADB_OPTIONS[@]}" --init-file=/var/lib/minicluster/grants.sql ;;
    slurmdbd) spawn "$name" slurm slurmdbd -D ;;
    slurmctld) spawn "$name" slurm slurmctld -D ;;
    slurmd:*) spawn "$name" root slurmd -D -N "${name#slurmd:}" "${SLURMD_OPTIONS[@]}" ;;
    slurmrestd) launch_restd "$name" "unix:$REST_SOCKET" rest_auth/local ;;
    slurmrestd-jwt) SLURM_JWT=daemon launch_restd "$name" "127.0.0.1:$PORT_RESTD_JWT" rest_auth/jwt ;;
    relay) launch_relay ;;
    relay:*) launch_port_relay "$name" ;;
    power) launch_power ;;
    *) usage_error "no such daemon: $name" ;;
    esac
}

# slurmrestd asks the kernel for its client's pid. A client outside of this PID namespace has no pid there, so it is
# refused. The relay is inside. It lets root on the host (the socket's mode) speak as infill.
launch_relay() {
    rm -f "$HOST_SOCKET"
    spawn relay infill socat "UNIX-LISTEN:$HOST_SOCKET,fork,mode=0600" "UNIX-CONNECT:$REST_SOCKET"
}

# relay:FROM:TO, for clients that temporarily cannot reach a port.
launch_port_relay() {
    local from to
    IFS=: read -r _ from to <<<"$1"
    spawn "$1" infill socat "TCP-LISTEN:$from,bind=127.0.0.1,reuseaddr,fork" "TCP:127.0.0.1:$to"
}

# SuspendProgram and ResumeProgram run as slurm, which cannot end and start root's processes. power.sh does it for
# them.
launch_power() {
    rm -f "$POWER_SOCKET"
    # -t: without it socat would end its child half a second after the request has ended.
    spawn power root socat -t 30 "UNIX-LISTEN:$POWER_SOCKET,fork,mode=0666" "EXEC:bash $MINI/lib/guest.sh power"
}

# Few threads: a test has one client, and each thread takes memory.
launch_restd() {
    # A socket that a killed slurmrestd left behind prevents the next one from listening.
    [[ $2 != unix:* ]] || rm -f "${2#unix:}"
    spawn "$1" infill slurmrestd -t 4 -s openapi/slurmctld -a "$3" "$2"
}

# spawn NAME USER CMD…
spawn() {
    local name=$1 user=$2
    shift 2
    rm -f "$STATE/$name.pid"
    # The inner shell expands these.
    # shellcheck disable=SC2016
    setsid --fork bash -c 'echo $$ >"$1.new" && mv "$1.new" "$1"; shift; exec "$@"' bash "$STATE/$name.pid" \
        setpriv --reuid "$user" --regid "$user" --init-groups -- "$@" \
        </dev/null >>"$LOGS/$name.out" 2>&1
    wait_until 5 test -s "$STATE/$name.pid"
}

# Fails at once when the daemon has died, and after half a minute in any case.
await() {
    local name=$1 end=$((SECONDS + 30)) said
    until said=$(answers "$name" 2>&1); do
        if ! is_running "$name" || ((SECONDS >= end)); then
            explain_failure "$name"
            [[ -z $said ]] || say "asking it gave: $said"
            return 1
        fi
        sleep 0.1
    done
}

answers() {
    local port
    case $1 in
    munged) timeout 5 munge -n ;;
    mariadbd) sql -e 'SELECT 1' ;;
    slurmdbd) listens "$PORT_SLURMDBD" && timeout 5 sacctmgr -n show cluster ;;
    slurmctld) timeout 5 scontrol ping | grep -q UP ;;
    slurmd:*) is_registered "$(timeout 5 sinfo -h -n "${1#slurmd:}" -o %T | head -n 1)" ;;
    slurmrestd) as_infill curl -sf --max-time 5 --unix-socket "$REST_SOCKET" http://slurm/openapi/v3 ;;
    slurmrestd-jwt) listens "$PORT_RESTD_JWT" ;;
    relay) [[ -S $HOST_SOCKET ]] ;;
    relay:*) IFS=: read -r _ port _ <<<"$1" && listens "$port" ;;
    power) [[ -S $POWER_SOCKET ]] ;;
    esac
}

# Whatever the node's state is (planned, completing, draining), * says that slurmctld has not heard from it.
is_registered() { [[ -n $1 && $1 != *'*'* && $1 != unknown* && $1 != down* ]]; }

sql() { timeout 10 mariadb --no-defaults --socket=/run/mysqld/mysqld.sock "$@"; }

as_infill() { setpriv --reuid infill --regid infill --init-groups -- "$@"; }

listens() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

pid_of() { cat "$STATE/$1.pid" 2>/dev/null || echo 0; }

is_running() {
    local pid
    pid=$(pid_of "$1")
    ((pid > 0)) && [[ -e /proc/$pid ]] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null
}

explain_failure() {
    local name=$1
    if is_running "$name"; then say "$name does not answer:"; else say "$name died:"; fi
    # In the foreground the daemons also write their whole log to stderr.
    tail -n 20 "$LOGS/$name.out" >&2
}

# start_daemon NAME: NAME as the user gives it; node:n3 means its slurmd.
start_daemon() {
    local name=${1/#node:/slurmd:}
    check_daemon_name "$name"
    if is_running "$name"; then
        say "$name runs already"
        return 0
    fi
    start "$name"
}

check_daemon_name() {
    local node
    case $1 in
    munged | mariadbd | slurmdbd | slurmctld | slurmrestd | slurmrestd-jwt | relay | power) ;;
    relay:*) [[ $1 =~ ^relay:[0-9]{1,5}:[0-9]{1,5}$ ]] || usage_error "a relay is relay:PORT:PORT, and not $1" ;;
    slurmd:n[0-9]*)
        node=${1#slurmd:n}
        [[ $node =~ ^[1-9][0-9]?$ ]] || usage_error "no such node: n$node"
        ((node <= NODES)) || usage_error "no such node: n$node"
        ;;
    *) usage_error "no such daemon: $1" ;;
    esac
}

# kill_daemon NAME: kills it as a crash would. node:n3 also kills everything that runs on n3.
kill_daemon() {
    local name=${1/#node:/slurmd:}
    check_daemon_name "$name"
    is_running "$name" || die "$name does not run"
    signal_group KILL "$name"
    [[ $1 != node:* ]] || signal_jobs_of KILL "${1#node:}"
    wait_until 5 is_not_running "$name" || die "$name does not die"
}

# signal_daemon STOP|CONT NAME: makes it, or all of a node, hang for a while.
signal_daemon() {
    local name=${2/#node:/slurmd:}
    check_daemon_name "$name"
    is_running "$name" || die "$name does not run"
    signal_group "$1" "$name"
    [[ $2 != node:* ]] || signal_jobs_of "$1" "${2#node:}"
}

# A relay's connections are processes of its group (spawn makes one). Processes that slurmd starts for jobs have other
# groups.
signal_group() { kill "-$1" -- "-$(pid_of "$2")"; }

is_not_running() { ! is_running "$1"; }

# All "nodes" are one machine. Slurm's daemons and every process of a job have the node's name in their environment.
# They are killed at once, each slurmstepd before its tasks: else it would report to slurmctld that they were killed.
signal_jobs_of() {
    local file pid steps=() tasks=()
    for file in /proc/[0-9]*/environ; do
        pid=${file//[!0-9]/}
        if tr '\0' '\n' 2>/dev/null <"$file" | grep -qx "SLURMD_NODENAME=$2"; then
            tasks+=("$pid")
            mapfile -t -O "${#steps[@]}" steps < <(stepd_of "$pid")
        fi
    done
    [[ -z ${tasks[*]} ]] || kill "-$1" "${steps[@]}" "${tasks[@]}" 2>/dev/null || true
}

# A step's slurmstepd lacks the variable, but is the parent of processes that have it.
stepd_of() {
    local parent
    parent=$(awk '/^PPid:/ { print $2 }' "/proc/$1/status" 2>/dev/null) || return 0
    [[ $(cat "/proc/$parent/comm" 2>/dev/null) != slurmstepd* ]] || echo "$parent"
}

# stop_all SECONDS NAME…: SIGTERM to all, then waits for all.
stop_all() {
    local seconds=$1 name
    shift
    for name; do
        ! is_running "$name" || kill -TERM "$(pid_of "$name")" 2>/dev/null || true
    done
    for name; do
        wait_until "$seconds" is_not_running "$name" || return 1
        rm -f "$STATE/$name.pid"
    done
}
