#!/usr/bin/env bash
# A real GlusterFS volume of one brick, mounted in this namespace alone: gluster.sh DIR COMMAND...
# runs the command with DIR/mnt mounted, and ends everything. glusterd refuses loopback addresses, so
# the namespace of the network has 10.99.9.1 on its `lo`; what it keeps of volumes lies in DIR.
set -euo pipefail
dir=$1
shift
mkdir -p "$dir"/{brick,mnt,state,log}
volume=gv$$
cp /etc/glusterfs/glusterd.vol "$dir/glusterd.vol"
sed -i "s#option working-directory .*#option working-directory $dir/state#; s#option run-directory .*#option run-directory $dir/state/run#" "$dir/glusterd.vol"
mkdir -p "$dir/state/run"
socket=$dir/state/cli.socket
sed -i "/end-volume/i \    option glusterd-sockfile $socket" "$dir/glusterd.vol"
glusterd -f "$dir/glusterd.vol" -p "$dir/glusterd.pid" -l "$dir/log/glusterd.log"
end() {
  umount -l "$dir/mnt" 2>/dev/null || true
  ask volume stop "$volume" force >/dev/null 2>&1 || true
  for pid in "$dir/glusterd.pid" "$dir"/state/run/*/*.pid "$dir"/state/vols/*/run/*.pid; do
    [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
  done
}
ask() { gluster --glusterd-sock="$socket" --mode=script --log-file="$dir/log/cli.log" "$@"; }
trap end EXIT
for _ in $(seq 100); do ask volume info >/dev/null 2>&1 && break; sleep 0.1; done
ask volume create "$volume" "10.99.9.1:$dir/brick" force
ask volume start "$volume"
glusterfs --volfile-server=10.99.9.1 --volfile-id="$volume" -l "$dir/log/mount.log" "$dir/mnt"
for _ in $(seq 100); do grep -q "$dir/mnt fuse.glusterfs" /proc/self/mounts && break; sleep 0.1; done
"$@"
