# Boots a copy of a Debian system that is thrown away afterwards, with systemd as its init, and runs /job/script in it.
# Prints what the script printed, and ends as it ended.
#
# Arguments: the folder of the system; the folder that is /job there, read-only; and folders that the system has at the
# same place as this machine, each as a copy of its own.
#
# The caller has made a mount namespace. All else of the system is its own as well: processes, network (a loopback
# interface alone), cgroups. What it writes is in a tmpfs that goes with the namespace.
set -eu
system=$1
job=$2
shift 2

# In a cgroup of its own it has no view of the machine's. Version 2 without a controller is enough, and any kernel has
# it, wherever the machine itself has mounted what.
space=$(mktemp --directory)
mount -t tmpfs -o mode=755 tmpfs "$space"
mkdir "$space/cgroup" "$space/root"
mount -t cgroup2 cgroup2 "$space/cgroup"
outer=$space/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
inner=$outer/larder-debian-$$
mkdir "$inner"
leave() {
    echo 0 > "$outer/cgroup.procs"
    find "$inner" -depth -type d -exec rmdir {} +
    umount --recursive --lazy "$space"
    rmdir "$space"
}
trap leave EXIT
echo 0 > "$inner/cgroup.procs"

# A copy of a folder: what is written stays in the tmpfs.
copies=0
copy() {
    copies=$((copies + 1))
    mkdir "$space/$copies" "$space/$copies.work"
    mkdir -p "$2"
    mount -t overlay -o "lowerdir=$1,upperdir=$space/$copies,workdir=$space/$copies.work" overlay "$2"
}
root=$space/root
copy "$system" "$root"
for folder; do
    copy "$folder" "$root$folder"
done
mkdir "$root/job"
mount --bind "$job" "$root/job"
mount -o remount,bind,ro "$root/job"
cp "$job/hosts" "$root/etc/hosts"
rm -f "$root/etc/resolv.conf"
echo debian > "$root/etc/hostname"
: > "$root/etc/fstab" # a machine's disks are not a job's
cat > "$root/etc/systemd/system/job.service" <<'UNIT'
[Unit]
After=basic.target systemd-user-sessions.service
Requires=basic.target
[Service]
Type=oneshot
WorkingDirectory=/root
Environment=HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive
EnvironmentFile=-/job/environment
StandardOutput=append:/output
StandardError=append:/output
ExecStart=/bin/bash /job/script
ExecStopPost=/bin/sh -c 'echo "$$SERVICE_RESULT $$EXIT_STATUS" > /status'
ExecStopPost=/bin/systemctl --force --force poweroff
TimeoutStartSec=900
UNIT

export space root
unshare --cgroup --ipc --mount --net --pid --uts --fork --kill-child sh -eu -c '
    mount -t proc proc "$root/proc"
    # These belong to the whole machine.
    for path in sys sysrq-trigger irq bus; do
        if [ -e "$root/proc/$path" ]; then
            mount --bind "$root/proc/$path" "$root/proc/$path"
            mount -o remount,bind,ro "$root/proc/$path"
        fi
    done
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for name in null zero full random urandom tty; do
        touch "$root/dev/$name"
        mount --bind "/dev/$name" "$root/dev/$name"
    done
    ip link set lo up
    # systemd asks for no hardware in a container.
    cd "$root"
    pivot_root . .
    umount --lazy .
    cd /
    exec /usr/bin/env -i container=larder /lib/systemd/systemd --unit=job.service
' < /dev/null >&2 || true # init ends by a signal when the system is switched off

cat "$root/output"
if ! read -r result status < "$root/status"; then
    echo "the system has not run the job" >&2
    exit 1
fi
[ "$result" = success ] || echo "the job ended with $result, $status" >&2
[ "$result" = success ]
