# shellcheck shell=bash
# The host's record of a cluster: DIR/state/env says how it was made, DIR/state/init in which process it lives.

# Ports come in blocks, one block a cluster, below the range from which the kernel gives out ephemeral ports.
readonly FIRST_PORT=10000 PORT_BLOCK=100 PORT_BLOCKS=220

lock_dir() {
    mkdir -p "$DIR"
    exec 9>"$DIR/lock"
    flock -w 180 9 || die "another minicluster command has been busy in $DIR for 3 minutes"
}

# Empties DIR for a new cluster. Refuses a directory with other files, so that --dir / is not a catastrophe.
clean_dir() {
    local entry
    if [[ ! -e $DIR/.minicluster ]]; then
        for entry in "$DIR"/* "$DIR"/.[!.]*; do
            [[ ! -e $entry || $entry = "$DIR/lock" ]] || die "$DIR holds other things ($entry); choose another --dir"
        done
        touch "$DIR/.minicluster"
    fi
    await_dying_init
    ! grep -qs '^CONSTRAIN=yes' "$DIR/state/env" || remove_node_cgroups
    # A stale cluster's mounts died with its namespace. --one-file-system protects any other mount.
    rm -rf --one-file-system "${DIR:?}"/{upper,work,root,state,run,etc,lib,scratch}
    [[ ${1-} = keep-logs ]] || rm -rf --one-file-system "$DIR/log"
}

await_dying_init() {
    local pid
    ! pid=$(recorded_init) || wait_until 20 process_is_gone "$pid" || die "process $pid of the last cluster does not die"
}

process_is_gone() { [[ ! -e /proc/$1 ]]; }

# node_names FIRST LAST: the beginning of a line of slurm.conf for these nodes.
node_names() {
    if (($1 == $2)); then echo "NodeName=n$1"; else echo "NodeName=n[$1-$2]"; fi
}

# Nodes with GPUs, and some without, which jobs share. The lines of --set come later and win.
share_gpus() {
    local all list
    all=$(node_names 1 "$NODES") list=$(node_names 1 $((NODES - CPU_NODES)))
    SETTINGS=(
        "$all CPUs=$((4 * GPUS)) RealMemory=$((4000 * GPUS))"
        "$list Gres=gpu:a100:$GPUS"
        GresTypes=gpu
        AccountingStorageTRES=gres/gpu
        SelectTypeParameters=CR_CPU_Memory
        DefMemPerCPU=500
        "PartitionName=main OverSubscribe=NO"
        "PartitionName=infill OverSubscribe=NO DefCpuPerGPU=4 DefMemPerGPU=4000"
        "${SETTINGS[@]}"
    )
    mkdir -p "$DIR/state/files"
    echo "$list $(gpu_files "$GPUS")" >"$DIR/state/files/gres.conf"
    sed -e 's/^local LEND = "nodes"$/local LEND = "gpus"/' -e 's/^local CPUS = nil$/local CPUS = 4/' \
        "$REPOSITORY/slurm/job_submit.lua" >"$DIR/state/files/job_submit.lua"
    cp "$DIR/state/files/job_submit.lua" "$DIR/state/files/infill.lua"
}

# gpu_files COUNT: the end of a line of gres.conf. settings.sh makes the files.
gpu_files() { echo "Name=gpu Type=a100 File=/etc/slurm/gpu[0-$(($1 - 1))]"; }

# Whole nodes with GPUs; some may have none.
give_gpus() {
    local node=0 count counts
    IFS=, read -ra counts <<<"$NODE_GPUS"
    SETTINGS=(GresTypes=gpu AccountingStorageTRES=gres/gpu "${SETTINGS[@]}")
    mkdir -p "$DIR/state/files"
    : >"$DIR/state/files/gres.conf"
    while ((++node <= NODES)); do
        count=${counts[node - 1]:-${counts[0]}}
        ((count > 0)) || continue
        SETTINGS=("NodeName=n$node Gres=gpu:a100:$count" "${SETTINGS[@]}")
        echo "NodeName=n$node $(gpu_files "$count")" >>"$DIR/state/files/gres.conf"
    done
}

# Slurm names a cgroup after its node (slurm_n1), so the nodes of two clusters would share it.
constrain_devices() {
    local version
    version=$(device_cgroups) || die "no cgroups for devices here: neither version 1 nor version 2 lets root use them"
    ! compgen -G "$(node_cgroups)" >/dev/null || die "another cluster constrains devices: $(node_cgroups)"
    SETTINGS=(TaskPlugin=task/cgroup "${SETTINGS[@]}")
    printf 'CgroupPlugin=cgroup/v%s\nIgnoreSystemd=yes\nConstrainDevices=yes\n' "$version" >"$DIR/state/files/cgroup.conf"
}

# The version of cgroups that can keep processes from devices, if there is one. Version 2 does it by BPF, and Slurm's
# plug-in also needs the controllers there.
device_cgroups() {
    local probe
    if [[ -f /sys/fs/cgroup/devices/devices.list ]]; then
        probe=/sys/fs/cgroup/devices/infill-probe-$$
        mkdir "$probe" 2>/dev/null && rmdir "$probe" && echo 1
    else
        grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null || return 1
        probe=/sys/fs/cgroup/infill-probe-$$
        mkdir "$probe" 2>/dev/null && rmdir "$probe" && echo 2
    fi
}

node_cgroups() {
    if [[ -d /sys/fs/cgroup/devices ]]; then echo '/sys/fs/cgroup/devices/slurm_n*'; else echo '/sys/fs/cgroup/system.slice/n*_slurmstepd.scope'; fi
}

# The processes are gone by now; their cgroups are not.
remove_node_cgroups() {
    local top folder
    for top in $(compgen -G "$(node_cgroups)"); do
        while read -r folder; do rmdir "$folder" 2>/dev/null || true; done < <(find "$top" -depth -type d)
    done
}

write_state() {
    mkdir -p "$DIR"/{upper,work,root,state,run,etc,lib,scratch,log} "$DIR/state/files"
    chmod 0755 "$DIR" "$DIR"/*/
    chmod 1777 "$DIR/scratch"
    choose_ports
    {
        printf 'NODES=%q\nRELEASE=%q\nBIN=%q\nCONSTRAIN=%q\nBARE=%q\n' "$NODES" "$RELEASE" "$BIN" "$CONSTRAIN" "$BARE"
        write_words SETTINGS "${SETTINGS[@]}"
        write_words SACCTMGR "${SACCTMGR[@]}"
        printf 'PORT_SLURMCTLD=%d\nPORT_SLURMDBD=%d\nPORT_RESTD_JWT=%d\nPORT_SLURMD=%d\n' \
            "$PORT_BASE" $((PORT_BASE + 1)) $((PORT_BASE + 2)) $((PORT_BASE + 10))
    } >"$DIR/state/env"
    # shellcheck disable=SC1091
    . "$DIR/state/env"
    local file
    for file in "${FILES[@]}"; do cat "${file#*=}" >"$DIR/state/files/${file%%=*}"; done
}

# write_words NAME WORD…: writes an array as a line that a shell can read.
write_words() {
    local name=$1
    shift
    if (($#)); then printf '%s=(%s)\n' "$name" "${*@Q}"; else printf '%s=()\n' "$name"; fi
}

# The same DIR gets the same ports, unless something else holds them.
choose_ports() {
    local hash block try
    hash=$(cksum <<<"$DIR" | cut -d' ' -f1)
    for ((try = 0; try < PORT_BLOCKS; try++)); do
        block=$(((hash + try) % PORT_BLOCKS))
        PORT_BASE=$((FIRST_PORT + block * PORT_BLOCK))
        block_is_free "$PORT_BASE" && return
    done
    die "no $PORT_BLOCK free ports in a row between $FIRST_PORT and $((FIRST_PORT + PORT_BLOCKS * PORT_BLOCK))"
}

block_is_free() {
    # Field 2 is ADDRESS:PORT in hexadecimal, field 4 the state; 0A is LISTEN.
    ! awk '$4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        while read -r port; do echo $((16#$port)); done |
        awk -v first="$1" -v size="$PORT_BLOCK" '$1 >= first && $1 < first + size { found = 1 } END { exit !found }'
}

# After a reboot or a wrap-around another process may have the pid. The start time tells them apart.
process_identity() {
    local stat
    [[ -r /proc/$1/stat ]] || return 1
    # It may end at any moment.
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # The name, field 2, may hold spaces: count from behind its closing parenthesis.
    read -ra stat <<<"${stat##*) }"
    ((${#stat[@]} > 19)) || return 1
    printf '%s %s %s\n' "$1" "${stat[19]}" "$(</proc/sys/kernel/random/boot_id)"
}

# The init's pid, alive or dying.
recorded_init() {
    local pid
    [[ -s $DIR/state/init ]] || return 1
    read -r pid _ <"$DIR/state/init"
    [[ $(process_identity "$pid" 2>/dev/null) = "$(<"$DIR/state/init")" ]] || return 1
    echo "$pid"
}

# A killed init stays, without namespaces, until all that it adopted has died.
init_pid() {
    local pid
    pid=$(recorded_init) && [[ -e /proc/$pid/ns/mnt ]] && echo "$pid"
}

is_up() { init_pid >/dev/null; }

load_state_if_up() {
    is_up || return 1
    # shellcheck disable=SC1091
    . "$DIR/state/env"
}

need_up() {
    load_state_if_up || {
        say "not up in $DIR (start it with: minicluster up)"
        exit "$EXIT_NOT_UP"
    }
}

daemon_names() {
    local i
    if uses_munge; then echo munged; fi
    printf '%s\n' mariadbd slurmdbd slurmctld
    for ((i = 1; i <= NODES; i++)); do echo "slurmd:n$i"; done
    [[ $BARE = yes ]] || printf '%s\n' slurmrestd slurmrestd-jwt relay
    if saves_power; then echo power; fi
}

# Lists "pid-inside pid-here" for all processes of the cluster.
pid_map() {
    local file
    for file in $(pgrep --ns "$(init_pid)" --nslist pid . 2>/dev/null | sed 's|.*|/proc/&/status|'); do
        awk '/^NSpid:/ { print $NF, $2 }' "$file" 2>/dev/null || true
    done
}

# Lists "name pid": the pid as this host sees it, or 0 for a daemon that does not run.
daemon_table() {
    local name inside here map
    map=$(pid_map)
    while read -r name; do
        here=
        if [[ -s $DIR/state/$name.pid ]]; then
            inside=$(<"$DIR/state/$name.pid")
            here=$(awk -v pid="$inside" '$1 == pid { print $2 }' <<<"$map")
        fi
        echo "$name ${here:-0}"
    done < <(daemon_names)
}

status_text() {
    if ! is_up; then
        echo "not up in $DIR"
        return
    fi
    printf 'up in %s: %s, %d nodes\n\n' "$DIR" "$RELEASE" "$NODES"
    daemon_table | awk '{ printf "  %-16s %s\n", $1, ($2 ? "pid " $2 : "down") }'
    printf '\n  REST socket   %s (inside: /run/infill/slurmrestd.sock)\n' "$DIR/run/host.sock"
    printf '  REST, tokens  http://127.0.0.1:%d (minicluster restd-jwt start)\n' "$PORT_RESTD_JWT"
    printf '  ports         slurmctld %d, slurmdbd %d, slurmd %d-%d\n' \
        "$PORT_SLURMCTLD" "$PORT_SLURMDBD" $((PORT_SLURMD + 1)) $((PORT_SLURMD + NODES))
    printf '  logs          %s\n  scratch       %s\n' "$DIR/log" "$DIR/scratch"
}

status_json() {
    if ! is_up; then
        printf '{"version":1,"up":false,"dir":"%s"}\n' "$DIR"
        return
    fi
    printf '{"version":1,"up":true,"dir":"%s","release":"%s","nodes":%d,"init_pid":%d,' \
        "$DIR" "$RELEASE" "$NODES" "$(init_pid)"
    printf '"rest_socket":"%s/run/host.sock","rest_socket_inside":"/run/infill/slurmrestd.sock",' "$DIR"
    printf '"rest_jwt_url":"http://127.0.0.1:%d","log_dir":"%s/log","scratch_dir":"%s/scratch",' \
        "$PORT_RESTD_JWT" "$DIR" "$DIR"
    printf '"ports":{"slurmctld":%d,"slurmdbd":%d,"slurmrestd_jwt":%d,"slurmd_first":%d},"daemons":[' \
        "$PORT_SLURMCTLD" "$PORT_SLURMDBD" "$PORT_RESTD_JWT" $((PORT_SLURMD + 1))
    daemon_table | awk '{ printf "%s{\"name\":\"%s\",\"pid\":%d,\"up\":%s}", (NR > 1 ? "," : ""), $1, $2, ($2 ? "true" : "false") }'
    printf ']}\n'
}
