#!/usr/bin/env bash
# The accounting records that infill needs: a QOS that main jobs may push away, and an Operator.
# Idempotent: run it again whenever QOSes or accounts are added. Needs Slurm administrator rights.
set -euo pipefail

readonly QOS=infill OPERATOR_ACCOUNT=infill

usage() {
    cat <<'END'
accounting.sh: the accounting records that infill needs

Usage: accounting.sh --main-qos QOS[,QOS…] --account ACCOUNT[,ACCOUNT…] [--own-account ACCOUNT] [--user USER]
                     [--cluster NAME] [--grace SECONDS] [--usage-factor FACTOR] [--max-submit JOBS] [--dry-run]
       accounting.sh --undo --main-qos … --account … [--own-account …] [--user USER] [--cluster NAME] [--dry-run]

  --main-qos   the QOSes of main jobs, which may preempt infill's jobs (a site without its own has: normal)
  --account    the accounts whose users may submit malleable jobs; `root` is every account that has no QOSes of
               its own
  --own-account   an account for malleable jobs alone, in which all users of the accounts above get an association: what
               their malleable jobs hold then counts in no limit (GrpTRES, MaxJobs, …) of their main jobs. It is made
               if there is none; write its name into job_submit.lua (ACCOUNT) as well, and run this script again
               whenever users are added. Without it malleable jobs run in the accounts above
  --user       the system user that the daemon runs as (default infill)
  --cluster    the cluster whose accounts change (default: this one, as slurmctld says). QOSes, and what an Operator
               may do, are the same on all clusters of a slurmdbd
  --grace      seconds that a preempted infill job gets to save its work (default 30)
  --usage-factor  what an hour of a malleable job counts in fair share and in GrpTRESMins, GrpWall, …: 0 (the default)
               makes harvested time free, 1 makes it cost what it costs elsewhere
  --max-submit  most malleable jobs of one user, with their wings, that wait or run at a time (MaxSubmitJobsPerUser
               of the QOS; default 10000; -1 for as many as anybody likes)
  --dry-run    print the sacctmgr commands instead of running them
  --undo       take everything back
END
}

MAIN_QOS=
ACCOUNTS=
OWN_ACCOUNT=
OPERATOR=infill
CLUSTER=
GRACE=30
USAGE_FACTOR=0
MAX_SUBMIT=10000
DRY_RUN=no
UNDO=no

parse_options() {
    while (($#)); do
        case $1 in
        --main-qos | --account | --own-account | --user | --cluster | --grace | --usage-factor | --max-submit)
            (($# >= 2)) || wrong_usage "$1 needs a value"
            set_option "$1" "$2"
            shift
            ;;
        --dry-run) DRY_RUN=yes ;;
        --undo) UNDO=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) wrong_usage "unknown option: $1" ;;
        esac
        shift
    done
    [[ -n $MAIN_QOS && -n $ACCOUNTS ]] || wrong_usage "--main-qos and --account are needed"
    [[ $GRACE =~ ^[0-9]+$ ]] || wrong_usage "--grace must be a number of seconds"
    [[ $USAGE_FACTOR =~ ^[0-9]+(\.[0-9]+)?$ ]] || wrong_usage "--usage-factor must be a number from 0"
    [[ $MAX_SUBMIT =~ ^([1-9][0-9]*|-1)$ ]] || wrong_usage "--max-submit must be a number of jobs from 1, or -1"
    [[ -z $OWN_ACCOUNT || $OWN_ACCOUNT =~ ^[a-z0-9_.-]+$ ]] || wrong_usage "--own-account: no name of an account: $OWN_ACCOUNT"
    [[ $OWN_ACCOUNT != "$OPERATOR_ACCOUNT" ]] || wrong_usage "--own-account: $OPERATOR_ACCOUNT is the daemon's"
}

set_option() {
    case $1 in
    --main-qos) MAIN_QOS=$2 ;;
    --account) ACCOUNTS=$2 ;;
    --own-account) OWN_ACCOUNT=$2 ;;
    --user) OPERATOR=$2 ;;
    --cluster) CLUSTER=$2 ;;
    --grace) GRACE=$2 ;;
    --usage-factor) USAGE_FACTOR=$2 ;;
    --max-submit) MAX_SUBMIT=$2 ;;
    esac
}

wrong_usage() {
    echo "accounting.sh: $*" >&2
    exit 2
}

change() {
    echo "sacctmgr -i $*"
    [[ $DRY_RUN = yes ]] || sacctmgr -i "$@"
}

# sacctmgr fails when there is nothing to change, so ask before each change. `grep` reads all of its input: with -q
# it would end early, and pipefail would take sacctmgr's broken pipe for a no.
qos_exists() { sacctmgr -nP show qos "$1" format=name | grep -x -- "$1" >/dev/null; }
account_exists() { sacctmgr -nP show assoc cluster="$CLUSTER" account="$1" format=account | grep -x -- "$1" >/dev/null; }
account_is_elsewhere() { sacctmgr -nP show assoc account="$1" format=cluster | grep -vx -- "$CLUSTER" >/dev/null; }
user_exists() { sacctmgr -nP show user "$1" format=user | grep -x -- "$1" >/dev/null; }

# field_has WORD COMMAND…: is WORD in the comma-separated list that COMMAND prints?
field_has() {
    local word=$1
    shift
    "$@" | tr ',' '\n' | grep -x -- "$word" >/dev/null
}

qos_preempts() { sacctmgr -nP show qos "$1" format=preempt; }
account_qos() { sacctmgr -nP show assoc cluster="$CLUSTER" account="$1" user='' format=qos; }

each() {
    local list=$1 function=$2 word
    for word in ${list//,/ }; do "$function" "$word"; done
}

# Before anything is changed: a typo must not leave half of it done.
check_qos() { qos_exists "$1" || wrong_usage "no such QOS: $1"; }
check_cluster() {
    [[ -n $CLUSTER ]] || CLUSTER=$(scontrol show config 2>/dev/null | sed -nE 's/^ClusterName *= *//p')
    [[ -n $CLUSTER ]] || wrong_usage "slurmctld does not say which cluster this is: --cluster is needed"
    sacctmgr -nP show cluster "$CLUSTER" format=cluster | grep -x -- "$CLUSTER" >/dev/null ||
        wrong_usage "no such cluster: $CLUSTER"
}
check_account() { account_exists "$1" || wrong_usage "no such account: $1"; }

add_qos() {
    # preemptmode=requeue   a job that is pushed away waits again, held or not, instead of dying.
    # gracetime             the time to save a checkpoint between the signal and the end.
    # flags=NoReserve       backfill reserves nothing for these jobs, so they cannot delay anyone.
    # priority=0            and they gain nothing over others.
    # usagefactor=0         what nobody else wanted costs nobody their share: else a user's main jobs wait longer because
    #                       of malleable ones, and GrpTRESMins is used up. (GrpTRES, MaxJobs and the like count jobs all
    #                       the same: --own-account.)
    # maxsubmitjobsperuser  a loop around sbatch fills neither slurmctld's queue nor the daemon's rounds.
    local settings=(
        preemptmode=requeue "gracetime=$GRACE" flags=NoReserve priority=0 "usagefactor=$USAGE_FACTOR"
        "maxsubmitjobsperuser=$MAX_SUBMIT"
    )
    if qos_exists "$QOS"; then
        change modify qos "$QOS" set "${settings[@]}"
    else
        change add qos "$QOS" "${settings[@]}"
    fi
}

# Without this line main jobs wait for infill's jobs: the one line that must not be forgotten.
let_preempt() {
    field_has "$QOS" qos_preempts "$1" || change modify qos "$1" set "preempt+=$QOS"
}

# Users name no QOS; the plug-in does. But their account must allow it.
allow_qos() {
    field_has "$QOS" account_qos "$1" || change modify account "$1" cluster="$CLUSTER" set "qos+=$QOS"
}

has_association() { sacctmgr -nP show assoc cluster="$CLUSTER" account="$OWN_ACCOUNT" user="$1" format=user | grep -x -- "$1" >/dev/null; }

# Of the account itself; of `root`, which has none of its own, everybody.
users_of() {
    if [[ $1 = root ]]; then
        sacctmgr -nP show assoc cluster="$CLUSTER" format=user | grep .
    else
        sacctmgr -nP show assoc cluster="$CLUSTER" account="$1" format=user
    fi | sort -u
}

# In an account of their own malleable jobs count in no limit of the accounts in which the same users run main jobs.
make_own_account() {
    account_exists "$OWN_ACCOUNT" ||
        change add account "$OWN_ACCOUNT" cluster="$CLUSTER" Description=malleable Organization=infill
    allow_only_ours
    each "$ACCOUNTS" add_users
}

# And nothing else gets in there.
allow_only_ours() {
    [[ $(account_qos "$OWN_ACCOUNT") = "$QOS" ]] ||
        change modify account "$OWN_ACCOUNT" cluster="$CLUSTER" set "qos=$QOS" "defaultqos=$QOS"
}

add_users() {
    local user
    for user in $(users_of "$1"); do
        [[ $user != "$OPERATOR" && $user != root ]] || continue
        has_association "$user" || change add user "$user" cluster="$CLUSTER" account="$OWN_ACCOUNT"
    done
}

remove_own_account() { ! account_exists "$OWN_ACCOUNT" || change delete account "$OWN_ACCOUNT" cluster="$CLUSTER"; }

# Operator, and not Administrator: it may pin, hold, release and cancel jobs, but cannot submit or run anything as
# somebody else. An account of its own shows in reports what it did, namely nothing.
add_operator() {
    account_exists "$OPERATOR_ACCOUNT" ||
        change add account "$OPERATOR_ACCOUNT" cluster="$CLUSTER" Description=infill Organization=infill
    if user_exists "$OPERATOR"; then
        change modify user "$OPERATOR" set adminlevel=operator
    else
        change add user "$OPERATOR" cluster="$CLUSTER" account="$OPERATOR_ACCOUNT" adminlevel=operator
    fi
}

forbid_preempt() { ! field_has "$QOS" qos_preempts "$1" || change modify qos "$1" set "preempt-=$QOS"; }
forbid_qos() { ! field_has "$QOS" account_qos "$1" || change modify account "$1" cluster="$CLUSTER" set "qos-=$QOS"; }

undo() {
    [[ -z $OWN_ACCOUNT ]] || remove_own_account
    each "$ACCOUNTS" forbid_qos
    if account_is_elsewhere "$OPERATOR_ACCOUNT"; then
        echo "infill is on other clusters of this slurmdbd, too: the QOS $QOS and the Operator $OPERATOR stay" >&2
        ! account_exists "$OPERATOR_ACCOUNT" || change delete account "$OPERATOR_ACCOUNT" cluster="$CLUSTER"
        return
    fi
    each "$MAIN_QOS" forbid_preempt
    ! user_exists "$OPERATOR" || change delete user "$OPERATOR"
    ! account_exists "$OPERATOR_ACCOUNT" || change delete account "$OPERATOR_ACCOUNT"
    ! qos_exists "$QOS" || change delete qos "$QOS"
}

main() {
    parse_options "$@"
    check_cluster
    each "$MAIN_QOS" check_qos
    each "$ACCOUNTS" check_account
    if [[ $UNDO = yes ]]; then
        undo
        return
    fi
    add_qos
    each "$MAIN_QOS" let_preempt
    if [[ -n $OWN_ACCOUNT ]]; then
        # Elsewhere they would count in the limits that the account is there to keep them out of.
        each "$ACCOUNTS" forbid_qos
        make_own_account
    else
        each "$ACCOUNTS" allow_qos
    fi
    add_operator
}

main "$@"
