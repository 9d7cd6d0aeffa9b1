# shellcheck shell=bash
# The settings of this cluster alone: lines of slurm.conf (SETTINGS), and files beside it (STATE/files).

readonly CONF=/etc/slurm/slurm.conf

# A number from the range for experiments: no driver has it.
readonly GPU_MAJOR=240

apply_settings() {
    local setting file
    for setting in "${SETTINGS[@]}"; do
        case $setting in
        NodeName=*) set_nodes "$setting" ;;
        PartitionName=*) set_words "${setting%% *}" "$setting" ;;
        *) set_key "${setting%%=*}" "${setting#*=}" ;;
        esac
    done
    for file in "$STATE"/files/*; do
        [[ -e $file ]] || continue
        # The existing file may be a link into the checkout.
        rm -f "/etc/slurm/${file##*/}"
        install -m 0755 "$file" "/etc/slurm/${file##*/}"
    done
    make_gpus
    uses_munge || make_slurm_auth
}

# The devices of gres.conf: character devices without a driver. Where root may not make devices, plain files.
make_gpus() {
    local gpu
    [[ -e /etc/slurm/gres.conf ]] && grep -q 'File=/etc/slurm/gpu' /etc/slurm/gres.conf || return 0
    for gpu in {0..7}; do
        mknod -m 0666 "/etc/slurm/gpu$gpu" c "$GPU_MAJOR" "$gpu" 2>/dev/null || : >"/etc/slurm/gpu$gpu"
    done
}

# Slurm takes a key once, so the old line goes, from whichever file. (sed makes a copy of a file that is a link.)
set_key() {
    local key=$1 value=$2 file
    for file in "$CONF" "$CONF.infill"; do
        ! grep -qsi "^$key=" "$file" || sed -i "/^$key=/Id" "$file"
    done
    [[ -z $value ]] || echo "$key=$value" >>"$CONF"
}

# set_words NAME=WHICH LINE: the words of LINE replace those of the line that begins with NAME=WHICH, or are added there.
set_words() {
    local name=$1 line=$2 file word
    for file in "$CONF" "$CONF.infill"; do
        grep -qs "^$name " "$file" || continue
        for word in ${line#"$name"}; do
            sed -i -e "/^$name /{ s#\$# #; s# ${word%%=*}=[^ ]*##I; s# *\$# $word#; }" "$file"
        done
        return
    done
    echo "$line" >>"$CONF"
}

# One line per node, so that each may have other words.
set_nodes() {
    local line=$1 list part i template
    template=$(grep '^NodeName=n\[1-' "$CONF") && {
        sed -i '/^NodeName=n\[1-/d' "$CONF"
        for ((i = 1; i <= NODES; i++)); do
            sed -e "s/^NodeName=[^ ]*/NodeName=n$i/" -e "s/ Port=[^ ]*/ Port=$((PORT_SLURMD + i))/" <<<"$template" >>"$CONF"
        done
    }
    list=${line%% *}
    list=${list#NodeName=n}
    list=${list#[}
    for part in ${list//[],]/ }; do
        for ((i = ${part%-*}; i <= ${part#*-}; i++)); do
            ((i <= NODES)) || die "--set $line: there is no node n$i"
            set_words "NodeName=n$i" "NodeName=n$i ${line#* }"
        done
    done
}

# Slurm's own authentication: a key for all hosts instead of MUNGE. Its clients look for the daemons' sockets in /run.
make_slurm_auth() {
    install -o slurm -g slurm -m 0600 <(head -c 1024 /dev/urandom) /etc/slurm/slurm.key
    sed -i 's#^AuthType=.*#AuthType=auth/slurm#' /etc/slurm/slurmdbd.conf
}
