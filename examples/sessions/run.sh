#!/bin/bash
# Two sites, each a PHP application with its sessions in a larderd of its own. One site is killed, its visitors go on at
# the other one, it comes back, and nobody is logged out. Needs larderd, php-cli, php-memcached and curl.
set -euo pipefail
cd "$(dirname "$0")"
larderd=${LARDERD:-larderd}
# Of site 1 and site 2.
read -r -a memcached <<< "${MEMCACHED_PORTS:-21211 21212}"
read -r -a replication <<< "${REPLICATION_PORTS:-21311 21312}"
read -r -a web <<< "${WEB_PORTS:-28081 28082}"
visitors=${VISITORS:-20}

work=$(mktemp -d)
declare -a pids=()
trap finish EXIT

finish() {
    kill -9 "${pids[@]}" || true
    wait || true
    rm -rf "$work"
} 2> /dev/null

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$work"/*.log >&2
    exit 1
}

# Tries a command until it succeeds, for a minute.
eventually() {
    for _ in $(seq 600); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "not within a minute: $*"
}

# Starts site 0 or 1: its larderd, and the application beside it.
start() {
    local site=$1 other=$((1 - $1))
    "$larderd" -u "$(id -un)" -l 127.0.0.1 -p "${memcached[site]}" -m 64 \
        --store "$work/store$site" --durability sync --site $((site + 1)) \
        --replication-listen "127.0.0.1:${replication[site]}" --peer "127.0.0.1:${replication[other]}" \
        --replication-token-file "$work/token" >> "$work/larderd$site.log" 2>&1 &
    pids[site]=$!
    php -d session.save_handler=memcached -d "session.save_path=127.0.0.1:${memcached[site]}" \
        -S "127.0.0.1:${web[site]}" index.php >> "$work/php$site.log" 2>&1 &
    pids[2 + site]=$!
    eventually is_up "$site"
}

is_up() {
    curl --silent --max-time 5 --output /dev/null "http://127.0.0.1:${web[$1]}/" && ask "$1" version > /dev/null
}

# What the larderd of a site answers.
ask() {
    exec 3<> "/dev/tcp/127.0.0.1/${memcached[$1]}" || return 1
    printf '%b\r\nquit\r\n' "$2" >&3
    tr -d '\r' <&3
    exec 3>&-
} 2> /dev/null

# A new site takes none before it has heard the other one.
takes_changes() {
    ask "$1" "stats replication" | grep -qx "STAT takes_changes yes"
}

# Waits until site $1 has what the other one has: a mark comes after all that was there before it.
catch_up() {
    local mark=mark$RANDOM
    [ "$(ask $((1 - $1)) "set $mark 0 60 1\r\nx")" = STORED ] || fail "site $((2 - $1)) takes no mark"
    eventually has "$1" "$mark"
}

has() {
    [ "$(ask "$1" "mg $2")" = HD ]
}

# The next page of a visitor, who has a cookie, at a site.
page() {
    curl --silent --fail --max-time 10 --cookie "$work/cookie$1" --cookie-jar "$work/cookie$1" \
        "http://127.0.0.1:${web[$2]}/${3:-}"
}

# Each visitor but those that have logged out sees this page next, at the site.
visit() {
    for visitor in $(seq 3 "$visitors"); do
        got=$(page "$visitor" "$1")
        [ "$got" = "visitor$visitor, page $2" ] || fail "site $(($1 + 1)): $got, not visitor$visitor, page $2"
    done
}

(umask 077 && head -c 32 /dev/urandom | base64 > "$work/token")
start 0
start 1
eventually takes_changes 0
eventually takes_changes 1
catch_up 0
catch_up 1

for visitor in $(seq "$visitors"); do
    page "$visitor" $((visitor % 2)) "?login=visitor$visitor" > /dev/null
done
catch_up 0
catch_up 1
echo "$visitors visitors have logged in, half of them at each site"

kill -9 "${pids[0]}" "${pids[2]}"
{ wait "${pids[0]}" "${pids[2]}" || true; } 2> /dev/null
visit 1 2
visit 1 3
[ "$(page 1 1 '?logout')" = "please log in" ] || fail "visitor 1 is still there"
[ "$(page 2 1 '?logout')" = "please log in" ] || fail "visitor 2 is still there"
[ "$(page new 1 '?login=new')" = "new, page 1" ] || fail "nobody can log in"
echo "site 1 is dead; its visitors went on at site 2, two logged out, one logged in"

start 0
catch_up 0
visit 0 4
[ "$(page new 0)" = "new, page 2" ] || fail "who logged in at site 2 is not known at site 1"
for visitor in 1 2; do
    [ "$(page "$visitor" 0)" = "please log in" ] || fail "visitor $visitor has logged out, and is back"
done
catch_up 1
visit 1 5
echo "site 1 is back; all are logged in at both sites, and those who logged out are not"
