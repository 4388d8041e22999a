#!/usr/bin/env bash
# Boots Debian's own systemd in namespaces of its own: host.sh BASE DIR. BASE is only read; what the
# host writes comes into DIR/upper, except /data, which is DIR/data: on a real disk. All of it
# ends with this process.
set -eu
base=$1 dir=$2
mkdir "$dir"/{upper,work,root}

# A cgroup for its systemd to rule; the name is what the test removes.
tree=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)
own=$(awk -F: '$1 == 0 {print $3}' /proc/self/cgroup)
cgroup=$tree${own%/}/loadline-host-$$
mkdir "$cgroup"
echo "$cgroup" >"$dir/cgroup"
echo $$ >"$cgroup/cgroup.procs"

exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup bash -euc '
  base=$1 dir=$2 root=$2/root
  mount --make-rprivate /
  mount -t overlay overlay -o "lowerdir=$base,upperdir=$dir/upper,workdir=$dir/work" "$root"
  mkdir "$root/data"
  mount --bind "$dir/data" "$root/data"
  mount -t proc proc "$root/proc"
  # Its systemd would set the kernel of this machine.
  mount --bind "$root/proc/sys" "$root/proc/sys"
  mount -o remount,bind,ro "$root/proc/sys"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  mkdir "$root"/dev/{pts,shm}
  for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
    mknod -m 666 "$root/dev/${node% *}" c 1 "${node#* }"
  done
  mknod -m 666 "$root/dev/tty" c 5 0
  mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  mount -t tmpfs -o mode=755 run "$root/run"
  ip link set lo up
  hostname loadline-host
  cd "$root"
  pivot_root . .
  umount -l .
  exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --log-target=console --log-level=warning --show-status=0
' bash "$base" "$dir"
