# ranks.bash — what tests of several ranks share: a job whose ranks are processes of this script, each with a log of its own.
#
#     start_rank R N COMMAND...     rank R of N in the background; its pid in ranks[R], what it says in rank.R
#     end_ranks CODE R...           waits for these ranks: each ends with that code
secret=$(printf '%04x' $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM)
ranks=() around=()

# Nobody listens at it at the moment.
choose_port() {
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
}

# $master: HOST:PORT; $around: words before the command (ip netns exec ...).
start_rank() {
    local rank=$1 count=$2
    shift 2
    RATION_RANK=$rank RATION_RANKS=$count RATION_MASTER=$master RATION_JOB=$secret RATION_THREADS=1 \
        "${around[@]+"${around[@]}"}" "$@" > "rank.$rank" 2>&1 &
    ranks[rank]=$!
    cleanups+=("kill -9 $! 2> /dev/null")
}

end_ranks() {
    local code=$1 rank got
    shift
    for rank in "$@"; do
        got=0
        wait "${ranks[rank]}" || got=$?
        [ $got = "$code" ] || { cat rank.* >&2; fail "rank $rank ended with $got instead of $code"; }
    done
}

# One of 0 to N - 1.
any_of() {
    echo $((RANDOM % $1))
}

# A moment within the first SECONDS of a job.
sleep_some() {
    sleep "$(awk -v most="$1" -v random=$RANDOM 'BEGIN {printf "%.3f", most * random / 32768}')"
}

# What is left of a job: nobody.
no_orphans() {
    local left
    left=$(pgrep -f "$1" || true)
    [ -z "$left" ] || fail "still there: $(ps -o pid,ppid,args -p "$(echo $left | tr ' ' ,)")"
}
