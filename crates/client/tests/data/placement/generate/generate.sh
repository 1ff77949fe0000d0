#!/bin/sh
# Records where the clients of memcached send keys: writes the files of this folder's parent. Run as root on Debian 12;
# what it needs it installs: Debian packages, and packages of PyPI and Maven below target/placement.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$here/../../../../../../target/placement
mkdir -p "$work"
apt-get install -y --no-install-recommends gcc libmemcached-dev nutcracker php-cli php-memcached php-memcache \
    ruby-dalli libcache-memcached-perl libcache-memcached-fast-perl python3-memcache python3-venv \
    maven default-jdk-headless iproute2 >"$work/apt.log"
python3 -m venv "$work/python"
"$work/python/bin/pip" install -q -r "$here/requirements.txt"
mvn -B -q -f "$here/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$work/jars"
gcc -Wall -O1 -o "$work/libmemcached" "$here/libmemcached.c" -lmemcached -lhashkit
javac -cp "$work/jars/*" -d "$work/classes" "$here/Spymemcached.java" "$here/Whalin.java"
# Servers need addresses and port 11211 of their own: a network without other programs.
unshare --net sh -c "ip link set lo up && exec '$work/python/bin/python' '$here/generate.py' '$work'"
