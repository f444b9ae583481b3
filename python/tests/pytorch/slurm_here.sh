#!/bin/bash
# Runs a batch script on three Slurm nodes that are all this machine. Needs root and slurm-wlm; what it mounts only its own processes see.
#
#   slurm_here.sh FOLDER SCRIPT ARGUMENTS
#
# FOLDER is new. It gets the configuration, the logs, and a folder for each node: home, cache and sockets. The output of SCRIPT is in FOLDER/out.
set -eu
if [ -z "${SLURM_HERE:-}" ]; then
  SLURM_HERE=1 exec unshare --mount "$0" "$@"
fi
here=$1
shift
mkdir -p "$here/state" "$here/log"
host=$(hostname -s)
port=$((20000 + $$ % 10000))

# The nodes' names are found like those of real machines.
{ echo "127.0.0.1 localhost"; echo "127.0.0.2 n1 $host"; echo "127.0.0.3 n2"; echo "127.0.0.4 n3"; } >"$here/hosts"
mount --bind "$here/hosts" /etc/hosts

# Each node has what each machine has for itself.
cat >"$here/prolog" <<X
#!/bin/sh
node=$here/\$SLURMD_NODENAME
mkdir -p -m 700 \$node/run
address=127.0.0.\$((\${SLURMD_NODENAME#n} + 1))
echo export HOME=\$node
echo export XDG_RUNTIME_DIR=\$node/run
echo export LCACHE_CACHE=\$node/ssd
echo export LCACHE_LISTEN=\$address
echo export PET_LOCAL_ADDR=\$address
X
chmod +x "$here/prolog"
cat >"$here/slurm.conf" <<X
ClusterName=lcache
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
TaskProlog=$here/prolog
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool.%n
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.%n.pid
SlurmctldLogFile=$here/log/slurmctld
SlurmdLogFile=$here/log/slurmd.%n
SlurmdParameters=config_overrides
ReturnToService=2
$(for n in 1 2 3; do echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.$((n + 1)) Port=$((port + n)) CPUs=1 State=UNKNOWN"; done)
PartitionName=all Nodes=ALL Default=YES State=UP
X
export SLURM_CONF=$here/slurm.conf
head -c 1024 /dev/urandom >"$here/munge.key"
chmod 600 "$here/munge.key"
end() {
  for name in slurmd.n1 slurmd.n2 slurmd.n3 slurmctld munge; do
    kill "$(cat "$here/$name.pid")" || true
  done
}
trap end EXIT
munged --force --socket="$here/munge.socket" --key-file="$here/munge.key" --pid-file="$here/munge.pid" --log-file="$here/log/munge" --seed-file="$here/munge.seed"
slurmctld -f "$SLURM_CONF"
for n in 1 2 3; do
  mkdir -p "$here/spool.n$n"
  slurmd -N "n$n" -f "$SLURM_CONF"
done
timeout 180 sbatch --wait --nodes=3 --output="$here/out" "$@" || { cat "$here/out" >&2; exit 1; }
