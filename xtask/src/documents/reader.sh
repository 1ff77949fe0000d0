# A reader of the documents, in a system of the test's own: types their commands one after the other, and writes down
# what each printed: the number of the step, its status, and the text, between control characters.
shopt -s expand_aliases
export PATH=$PATH:/usr/sbin
# Services of packages are started, as for a reader, and no index of manual pages is made.
# A page replaces memcached; later ones have it here.
cp /usr/bin/memcached /tmp
rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update

# Tries a command until it succeeds, for a minute.
eventually() {
    for _ in $(seq 600); do
        "$@" && return
        sleep 0.1
    done
    return 1
}

# Each document begins anew: in an empty folder, with nothing of larder but the two programs.
begin() {
    systemctl stop memcached larderd.socket larderd
    servers=$(pidof larderd memcached) && builtin kill -KILL $servers && eventually gone $servers
    [ ! -e /usr/bin/larderd ] || dpkg --purge larder-memcached larder
    rm -rf /etc/larder /etc/default/larderd /usr/local/bin/larder* /usr/local/lib/systemd /run/larderd.pid ~/.local
    install -D -t /usr/local/bin /job/larder /job/larderd
    hash -r
    cd "$(mktemp --directory)" || exit 1
    chmod 755 .
} > /dev/null 2>&1

# The packages, as they are named when they are made, and the service stopped.
package() {
    dpkg --install /job/larder_*.deb
    systemctl stop larderd
    cp /job/larder_*.deb larder_0.1.0-1_amd64.deb
    cp /job/larder-memcached_*.deb larder-memcached_0.1.0-1_all.deb
    cp /job/larder-*.tar.gz larder-0.1.0-x86_64-unknown-linux-gnu.tar.gz
} > /dev/null 2>&1

gone() {
    ! builtin kill -0 "$@" 2> /dev/null
}

# What the reader ends is gone before the next command.
kill() {
    case "$1" in
    -*) builtin kill "$@" ;;
    *) builtin kill "$@" && eventually gone "$@" ;;
    esac
}

# One server for each name of this machine, without a terminal.
servers() {
    for name; do
        larderd -d -u nobody -t 1 -l "$name"
        eventually command larder ping -s "$name" > /dev/null
    done
}

step() {
    printf '\036%s\037' "$1"
    eval "$2" < /dev/null
    printf '\035%s\036' "$?"
}

# A server in a terminal of its own, where the reader leaves it, and ends it to type the next. $1 is the number of lines
# that it is to write.
serve() {
    [ -z "$server" ] || { builtin kill "$server"; wait "$server"; }
    # Servers of different users write the file of ports, and memcached leaves its unfinished one if it does not start.
    rm -f /tmp/ports /tmp/ports.lck /tmp/log
    touch /tmp/log
    (
        export MEMCACHED_PORT_FILENAME=/tmp/ports
        eval "exec env $2"
    ) > /tmp/log 2>&1 &
    server=$!
    eventually test -s /tmp/ports
    eventually has_logged "$1"
    logged
    builtin kill -0 "$server"
} 2> /dev/null

# The reader is root; the readers of most pages need not be.
logged() {
    grep -v 'WARN started as root without -u' /tmp/log
}

has_logged() {
    [ "$1" -le "$(logged | wc -l)" ]
}

# What goes on until the reader stops it ends by itself; what takes long is made short; what asks is answered.
larder() {
    local tool=$1 words secs=
    words=()
    for word; do
        [ "$secs" = yes ] && word=1
        secs=
        [ "$word" = --secs ] && secs=yes
        words+=("$word")
    done
    case "$tool" in
    watch)
        (sleep 1; command larder set greeting hello --ttl 60; command larder set visits 1) &
        timeout 3 larder "${words[@]}"
        [ $? = 124 ] || [ $? = 0 ]
        ;;
    passwd) echo secret | command larder "${words[@]}" ;;
    bench)
        case "$*" in *--secs* | *presets*) ;; *) words+=(--secs 1) ;; esac
        command larder "${words[@]}"
        ;;
    *) command larder "${words[@]}" ;;
    esac
}

# On a terminal it shows no progress.
curl() {
    command curl --no-progress-meter "$@"
}

apt() {
    apt-get --yes "$@"
}
