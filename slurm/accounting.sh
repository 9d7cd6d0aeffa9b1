#!/usr/bin/env bash
# The accounting records that infill needs: a QOS that main jobs may preempt, and an Operator.
# Idempotent: run it again whenever QOSes or accounts are added. Needs Slurm administrator rights.
set -euo pipefail

readonly QOS=infill OPERATOR_ACCOUNT=infill

usage() {
    cat <<'END'
accounting.sh: the accounting records that infill needs

Usage: accounting.sh --main-qos QOS[,QOS…] --account ACCOUNT[,ACCOUNT…] [--own-account ACCOUNT] [--user USER]
                     [--cluster NAME] [--grace SECONDS] [--usage-factor FACTOR] [--max-submit JOBS] [--dry-run]
       accounting.sh --undo --main-qos … --account … [--own-account …] [--user USER] [--cluster NAME] [--dry-run]

  --main-qos   the QOSes of main jobs, which may preempt infill's jobs (without QOSes of its own a site has: normal)
  --account    the accounts whose users may submit malleable jobs; `root` is every account that has no QOSes of
               its own
  --own-account   a separate account for malleable jobs, in which all users of the accounts above get an association.
               Their malleable jobs then count in no limit (GrpTRES, MaxJobs, …) of their main jobs. The script makes
               the account if it does not exist. Write its name into job_submit.lua (ACCOUNT) too, and run the script
               again whenever users are added. Without this option malleable jobs run in the accounts above
  --user       the system user that the daemon runs as (default infill)
  --cluster    the cluster whose accounts change (default: this one, as slurmctld says). QOSes and the rights of an
               Operator are the same on all clusters of a slurmdbd
  --grace      seconds after which Slurm itself ends a preempted job whose agent does not (GraceTime of the QOS; default 30).
               Agents end it after 2 s (agent.preempt_leave_secs)
  --usage-factor  how much an hour of a malleable job counts in fair share and in GrpTRESMins, GrpWall, …: 0 (the default)
               makes harvested time free, 1 makes it cost as much as elsewhere
  --max-submit  most malleable jobs of one user, with their wings, that wait or run at a time (MaxSubmitJobsPerUser
               of the QOS; default 10000; -1 for no limit)
  --dry-run    print the sacctmgr commands instead of running them
  --undo       undo all changes
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
    [[ -z $OWN_ACCOUNT || $OWN_ACCOUNT =~ ^[a-z0-9_.-]+$ ]] ||
        wrong_usage "--own-account must be the name of an account: $OWN_ACCOUNT"
    [[ $OWN_ACCOUNT != "$OPERATOR_ACCOUNT" ]] || wrong_usage "--own-account: $OPERATOR_ACCOUNT belongs to the daemon"
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

# sacctmgr fails when there is nothing to change, so each change asks first. `grep` reads all of its input. With -q it
# would end early, and pipefail would take sacctmgr's broken pipe for a no.
qos_exists() { sacctmgr -nP show qos "$1" format=name | grep -x -- "$1" >/dev/null; }
account_exists() { sacctmgr -nP show assoc cluster="$CLUSTER" account="$1" format=account | grep -x -- "$1" >/dev/null; }
account_is_elsewhere() { sacctmgr -nP show assoc account="$1" format=cluster | grep -vx -- "$CLUSTER" >/dev/null; }
user_exists() { sacctmgr -nP show user "$1" format=user | grep -x -- "$1" >/dev/null; }

# field_has WORD COMMAND…: whether WORD is in the comma-separated list that COMMAND prints.
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

# These checks run before any change: a typo must not leave the work half done.
check_qos() { qos_exists "$1" || wrong_usage "no such QOS: $1"; }
check_cluster() {
    [[ -n $CLUSTER ]] || CLUSTER=$(scontrol show config 2>/dev/null | sed -nE 's/^ClusterName *= *//p')
    [[ -n $CLUSTER ]] || wrong_usage "slurmctld does not say which cluster this is: --cluster is needed"
    sacctmgr -nP show cluster "$CLUSTER" format=cluster | grep -x -- "$CLUSTER" >/dev/null ||
        wrong_usage "no such cluster: $CLUSTER"
}
check_account() { account_exists "$1" || wrong_usage "no such account: $1"; }

add_qos() {
    # preemptmode=requeue   a preempted job waits again, held or not, instead of dying.
    # gracetime             the time between the signal and the end, in which a job saves a checkpoint.
    # preemptexempttime=0   a job can be preempted as soon as it runs, also where slurm.conf spares young jobs.
    # flags=NoReserve       backfill reserves nothing for these jobs, so they cannot delay anyone.
    # priority=0            these jobs gain nothing over others.
    # usagefactor=0         harvested time costs no fair share. Otherwise a user's main jobs would wait longer because
    #                       of malleable ones, and GrpTRESMins would be used up. (GrpTRES, MaxJobs and the like
    #                       still count these jobs: --own-account.)
    # maxsubmitjobsperuser  a loop around sbatch fills neither slurmctld's queue nor the daemon's rounds.
    local settings=(
        preemptmode=requeue "gracetime=$GRACE" flags=NoReserve priority=0 "usagefactor=$USAGE_FACTOR" preemptexempttime=0
        "maxsubmitjobsperuser=$MAX_SUBMIT"
    )
    if qos_exists "$QOS"; then
        change modify qos "$QOS" set "${settings[@]}"
    else
        change add qos "$QOS" "${settings[@]}"
    fi
}

# This line is essential: without it main jobs wait for infill's jobs.
let_preempt() {
    field_has "$QOS" qos_preempts "$1" || change modify qos "$1" set "preempt+=$QOS"
}

# The plug-in names the QOS, not the user. But the user's account must allow it.
allow_qos() {
    field_has "$QOS" account_qos "$1" || change modify account "$1" cluster="$CLUSTER" set "qos+=$QOS"
}

has_association() { sacctmgr -nP show assoc cluster="$CLUSTER" account="$OWN_ACCOUNT" user="$1" format=user | grep -x -- "$1" >/dev/null; }

# The users of an account. `root` has no users itself, so it stands for all users.
users_of() {
    if [[ $1 = root ]]; then
        sacctmgr -nP show assoc cluster="$CLUSTER" format=user | grep .
    else
        sacctmgr -nP show assoc cluster="$CLUSTER" account="$1" format=user
    fi | sort -u
}

# In a separate account malleable jobs count in no limit of the accounts in which their users run main jobs.
make_own_account() {
    account_exists "$OWN_ACCOUNT" ||
        change add account "$OWN_ACCOUNT" cluster="$CLUSTER" Description=malleable Organization=infill
    allow_only_ours
    each "$ACCOUNTS" add_users
}

# The account allows no other QOS.
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

# An Operator, not an Administrator: it may pin, hold, release and cancel jobs, but cannot submit or run anything as
# another user. Its own account lets reports show what the daemon did itself, which is nothing.
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
        echo "other clusters of this slurmdbd use infill too: the QOS $QOS and the Operator $OPERATOR stay" >&2
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
        # In the other accounts they would count in the limits that the separate account keeps them out of.
        each "$ACCOUNTS" forbid_qos
        make_own_account
    else
        each "$ACCOUNTS" allow_qos
    fi
    add_operator
}

main "$@"
