#!/usr/bin/env bash
# A real Ceph of one monitor, one manager and two OSDs on loopback: cluster.sh DIR PORT. It is
# HEALTH_OK a few seconds later. `client.weak` may look, and not have an OSD write. Ends with the
# processes whose pids stand in DIR/run.
set -euo pipefail
dir=$1 port=$2
mkdir -p "$dir"/{run,mon.a,mgr.x,osd.0,osd.1}
monitor="[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]"
cat > "$dir/ceph.conf" <<X
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = $monitor
public addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $dir/\$name.keyring
run dir = $dir/run
pid file = $dir/run/\$name.pid
log to file = false
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
[mon]
mon data = $dir/mon.\$id
keyring = $dir/mon.keyring
auth allow insecure global id reclaim = false
mon data avail warn = 1
mon data avail crit = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
[mgr]
mgr data = $dir/mgr.\$id
mgr pool = false
[osd]
osd data = $dir/osd.\$id
osd objectstore = bluestore
osd crush update on start = false
osd max backfills = 3
bluestore block size = 3221225472
X
export CEPH_CONF=$dir/ceph.conf
ceph-authtool --create-keyring "$dir/mon.keyring" --gen-key -n mon. --cap mon 'allow *'
ceph-authtool --create-keyring "$dir/client.admin.keyring" --gen-key -n client.admin \
  --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/client.admin.keyring"
monmaptool --create --addv a "$monitor" --fsid "$(sed -n 's/^fsid = //p' "$CEPH_CONF")" "$dir/monmap"
ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/mon.keyring"
ceph-mon -i a
ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' -o "$dir/mgr.x.keyring"
ceph-mgr -i x
ceph auth get-or-create client.weak mon 'allow r' mgr 'allow r' osd 'allow r' -o "$dir/client.weak.keyring"
start() {
  ceph-osd -i "$1" --mkfs --osd-uuid "$2"
  ceph-osd -i "$1"
  ceph osd crush add "$1" 1 root=default "host=h$1"
}
uuids=()
for i in 0 1; do
  uuids[i]=$(cat /proc/sys/kernel/random/uuid)
  ceph-authtool --create-keyring "$dir/osd.$i.keyring" --gen-key -n "osd.$i"
  key=$(ceph-authtool -n "osd.$i" -p "$dir/osd.$i.keyring")
  echo "{\"cephx_secret\": \"$key\"}" | ceph osd new "${uuids[i]}" -i -
done
start 0 "${uuids[0]}" & first=$!
start 1 "${uuids[1]}"
wait $first
