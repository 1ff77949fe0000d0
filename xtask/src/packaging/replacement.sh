# In a Debian system with memcached: larder's packages take its place while two web applications run, and give it back.
# $1 is the way: at-once, or moving the contents as well.
set -eu

fail() {
    echo "$*"
    systemctl status --no-pager --lines=20 memcached larderd || true
    cat /tmp/php.log /tmp/django.log || true
    exit 1
}

# Tries a command until it succeeds: servers take a moment to listen.
eventually() {
    for _ in $(seq 600); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "in a minute: $*"
}

# The next page of a visitor, who has a cookie.
page() {
    curl --silent --fail --max-time 10 --cookie "/tmp/$1" --cookie-jar "/tmp/$1" "http://127.0.0.1:$2/"
}

# The visitor of each application sees these pages next, since a session is kept.
visit() {
    for n in "$@"; do
        [ "$(page php 8001)" = "page $n" ] || fail "PHP: not page $n"
        case "$(page django 8002)" in "page $n, "*" of all") ;; *) fail "Django: not page $n" ;; esac
    done
}

# A visitor without a cookie, until both applications have found the server again.
is_served() {
    case "$(page nobody 8001)" in page*) ;; *) return 1 ;; esac
    case "$(page nobody 8002)" in page*) ;; *) return 1 ;; esac
}

# Whether this program runs in memcached's place.
runs() {
    pid=$(systemctl show --property MainPID --value memcached)
    [ "$(readlink "/proc/$pid/exe")" = "/usr/bin/$1" ]
}

# This program is in memcached's place, also after the next start of the system.
serves() {
    eventually runs "$1"
    [ "$(systemctl is-enabled "$1")" = enabled ] || fail "$1 is not enabled"
    eventually is_served
}

has_memory() {
    larder stat settings --grep maxbytes | grep -q ": $1\$" || fail "not $1 bytes of memory"
}

# dpkg has a terminal of apt's, which ends lines with CR LF.
install() {
    apt-get install --quiet --yes "$@" 2>&1 | tr -d '\r' | tee /tmp/apt.log
    [ "${PIPESTATUS[0]}" = 0 ] || fail "apt-get install $*"
}

systemctl start memcached
cp /job/index.php /job/counter.py /tmp
cd /tmp
PHPRC=/job/php.ini php -S 127.0.0.1:8001 index.php > /tmp/php.log 2>&1 &
python3 counter.py runserver --noreload 127.0.0.1:8002 > /tmp/django.log 2>&1 &
serves memcached
visit 1 2 3

# A package that depends on memcached is there in all that follows.
mkdir -p /tmp/user/DEBIAN
cat > /tmp/user/DEBIAN/control <<'END'
Package: user-of-memcached
Version: 1
Architecture: all
Maintainer: nobody <nobody@example.invalid>
Depends: memcached (>= 1.5)
Description: a package that needs memcached
END
dpkg-deb --build /tmp/user /tmp/user.deb
install /tmp/user.deb

case "$1" in
at-once)
    sed -i 's/^-m 64/-m 100 # MiB/' /etc/memcached.conf
    install /job/larder_*.deb /job/larder-memcached_*.deb
    serves larderd
    # The package says what to write so that the memory stays.
    options=$(sed -n '/^.etc.memcached.conf is not read/s/.*: OPTIONS=/OPTIONS=/p' /tmp/apt.log)
    [ "$options" = 'OPTIONS="-m 100 -p 11211 -l 127.0.0.1"' ] || fail "it says: $options"
    echo "$options" > /etc/default/larderd
    systemctl restart memcached
    serves larderd
    has_memory 104857600
    rm /tmp/php /tmp/django # the cookies: the cache is empty
    visit 1 2 3
    ;;
moving)
    install /job/larder_*.deb
    serves memcached
    visit 4
    larder dump 127.0.0.1:11211 --file /tmp/items
    install /job/larder-memcached_*.deb
    if grep 'is not read' /tmp/apt.log; then fail "larderd has these options already"; fi
    systemctl enable --now larderd
    serves larderd
    larder load 127.0.0.1:11211 --file /tmp/items
    visit 5 6
    has_memory 67108864 # as Debian's memcached
    ;;
esac

# memcached's configuration goes, and larderd starts anew.
apt-get purge --quiet --yes memcached
systemctl restart memcached
serves larderd
rm /tmp/php /tmp/django
visit 1 2 3

# And back.
install memcached larder-
serves memcached
rm /tmp/php /tmp/django
visit 1 2 3
dpkg-query --show user-of-memcached php-memcached python3-django
