#!/usr/bin/env bash
# ranks_hosts.sh — ranks on two hosts, each a network namespace: they meet by IPv4 and IPv6; a host that is cut off at a random moment
# (its link goes down: nothing is closed, nothing answers) is named by the others, and itself names them; a host without a route.
# $ROUNDS moments (1).
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
rounds=${ROUNDS:-1}
. "$here/common.bash"
. "$here/ranks.bash"
one=ration$$a two=ration$$b
cleanups+=("ip netns del $one 2> /dev/null; ip netns del $two 2> /dev/null")
ip netns add $one 2> err && ip netns add $two 2> err || { echo "skipped: no network namespaces here: $(head -1 err)"; exit 77; }
ip link add a$$ netns $one type veth peer name b$$ netns $two 2> err || { echo "skipped: no veth here: $(head -1 err)"; exit 77; }
in_one=(ip netns exec $one) in_two=(ip netns exec $two)
ip -n $one addr add 10.77.0.1/24 dev a$$
ip -n $two addr add 10.77.0.2/24 dev b$$
ip -n $one addr add fd77::1/64 dev a$$ nodad 2> /dev/null && ip -n $two addr add fd77::2/64 dev b$$ nodad && six=yes
for host in $one $two; do ip -n $host link set lo up; done
connect() { ip -n $one link set a$$ up && ip -n $two link set b$$ up; }
connect

# start_job COMMAND...: ranks 0 and 1 on the first host, 2 on the second.
start_job() {
    around=("${in_one[@]}")
    start_rank 0 3 "$@"
    start_rank 1 3 "$@"
    around=("${in_two[@]}")
    start_rank 2 3 "$@"
}

for address in 10.77.0.1 ${six:+[fd77::1]}; do
    master=$address:29500
    start_job "$ration" calibrate --comm-timeout 60s
    end_ranks 0 0 1 2
    says rank.0 '3 ranks by sockets' 'bandwidth'
done

for round in $(seq "$rounds"); do
    master=10.77.0.1:$((29500 + round))
    start_job "$ration" calibrate --soak 60s --comm-timeout 2s
    wait_for "${ranks[2]}" catches "${ranks[2]}" TERM
    sleep_some 2
    begin=$SECONDS
    ip -n $two link set b$$ down
    end_ranks 5 0 1 2
    echo "round $round: noticed within $((SECONDS - begin)) s" >&2
    for r in 0 1; do grep -qE 'rank 2 of 3|ranks? (1, )?2 of 3|rank 0 of 3' rank.$r || { cat rank.$r >&2; fail "rank $r does not name rank 2"; }; done
    grep -qE 'ranks? 0(, 1)? of 3|rank [01] of 3' rank.2 || { cat rank.2 >&2; fail 'rank 2 names nobody'; }
    connect
done

# No route to rank 0's machine.
master=10.99.0.1:29500 around=("${in_two[@]}")
start_rank 1 2 "$ration" calibrate --comm-timeout 1s
end_ranks 5 1
says rank.1 'rank 0 of 2 was not reached at 10.99.0.1' 'unreachable' 'firewalls'
