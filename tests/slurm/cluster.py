"""A Slurm of its own on this machine: munged, slurmctld, and a slurmd for each of two nodes, n0 and n1.

A node is a network namespace, with an address, shared memory, and a link to a bridge that can be cut.  Their names are in a copy of
/etc/hosts that only these processes see, so that ranks find each other as on two machines.  Files are in one folder, which has a small
disk in it; of a Slurm that is installed here only the programs are used.  It needs root."""
import datetime
import os
import pathlib
import signal
import socket
import subprocess
import time

CONFIGURATION = """\
ClusterName=mpc
SlurmctldHost={host}({net}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
NodeName=n0 NodeHostname={host} NodeAddr={net}.1 Port={ports[1]} CPUs=2
NodeName=n1 NodeHostname={host} NodeAddr={net}.2 Port={ports[2]} CPUs=2
PartitionName=low Nodes=n0,n1 Default=YES PriorityTier=1 MaxTime=INFINITE State=UP
PartitionName=high Nodes=n0,n1 PriorityTier=10 MaxTime=INFINITE State=UP
"""


def patience(seconds):
    """So long where the processors are free, longer where others want them too."""
    return seconds * max(1, min(os.getloadavg()[0] / os.cpu_count(), 4))


def await_that(what, seconds, condition):
    end = time.monotonic() + patience(seconds)
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} has not come"
        time.sleep(.1)
    return found


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def descendants(pid):
    """A process and all that it has started, as far as they have not left it."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [pid] + [one for child in file.read().split() for one in descendants(int(child))]
    except FileNotFoundError:
        return []


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Cluster:
    def __init__(self, folder):
        self.folder, self.daemons = pathlib.Path(folder), {}
        self.tag = f"mpc{os.getpid() % 100000}"
        self.net = f"10.{20 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def open(self):
        self.make_network()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self.disk], check=True)
        for name in ("state", "n0", "n1", "tmp.n0", "tmp.n1"):
            (self.folder / name).mkdir()
        (self.folder / "munge").mkdir(mode=0o700)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        names = f"{self.net}.1 n0\n{self.net}.2 n1\n"
        (self.folder / "hosts").write_text(pathlib.Path("/etc/hosts").read_text() + names)
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, host=host, ports=free_ports(3), net=self.net))
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "OMP_NUM_THREADS": "1",
                            "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        munge = self.folder / "munge"
        self.start("munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        await_that("munged", 20, (munge / "socket").exists)
        self.start("slurmctld", "slurmctld", "-D", "-c")
        for node in ("n0", "n1"):
            self.start_node(node)

    def make_network(self):
        """A bridge, with slurmctld beside it, and a cable to each node."""
        ip("link", "add", self.tag, "type", "bridge")
        ip("addr", "add", f"{self.net}.254/24", "dev", self.tag)
        ip("link", "set", self.tag, "up")
        for number, node in enumerate(("n0", "n1"), 1):
            space, outer, inner = f"{self.tag}{node}", f"{self.tag}{node}o", f"{self.tag}{node}i"
            ip("netns", "add", space)
            ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            ip("link", "set", inner, "netns", space)
            ip("link", "set", outer, "master", self.tag, "up")
            for words in (["link", "set", "lo", "up"], ["addr", "add", f"{self.net}.{number}/24", "dev", inner], ["link", "set", inner, "up"]):
                ip("-n", space, *words)

    def set_link(self, node, state):
        """up or down."""
        ip("link", "set", f"{self.tag}{node}o", state)

    def start(self, name, *command):
        """In a namespace of mounts with the names of the nodes, and shared memory of its own; a node in its network."""
        script = f'mount --bind {self.folder}/hosts /etc/hosts && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        inside = ["nsenter", f"--net=/run/netns/{self.tag}{name}"] if name in ("n0", "n1") else []
        with open(self.folder / f"{name}.said", "ab") as said:
            self.daemons[name] = subprocess.Popen([*inside, "unshare", "-m", "sh", "-c", script, "sh", *command], env=self.environment,
                                                  stdout=said, stderr=said, stdin=subprocess.DEVNULL)

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-N", node)
        await_that(f"node {node}", 20, lambda: self.state_of(node) in ("idle", "mixed", "allocated"))

    def state_of(self, node):
        done = subprocess.run(["sinfo", "-h", "-n", node, "-o", "%T", "-p", "low"], env=self.environment, capture_output=True, text=True)
        return done.stdout.strip()

    def kill_node(self, node):
        """As if its machine had lost its power: the daemon, the steps, and all ranks."""
        steps = [pid for pid, command in processes() if "slurmstepd" in command and self.is_of(pid, node)]
        for pid in [one for step in steps for one in descendants(step)] + [self.daemons[node].pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.daemons[node].wait()

    def is_of(self, pid, node):
        """slurmstepd has the node's name in its children's environment, or has its spool folder open."""
        for one in descendants(pid):
            try:
                with open(f"/proc/{one}/environ", "rb") as file:
                    words = file.read().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if f"SLURMD_NODENAME={node}".encode() in words and f"SLURM_CONF={self.folder}/slurm.conf".encode() in words:
                return True
        return False

    def ranks(self, program):
        """The processes of a trainer, by rank."""
        found = {}
        for pid, command in processes():
            if command.startswith(str(program)):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        words = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if b"SLURM_PROCID" in words:
                    found[int(words[b"SLURM_PROCID"])] = pid
        return found

    def run(self, *command, status=0, **environment):
        done = subprocess.run(["unshare", "-m", "sh", "-c", f'mount --bind {self.folder}/hosts /etc/hosts && exec "$@"', "sh",
                               *map(str, command)], env={**self.environment, **environment}, cwd=self.folder, capture_output=True,
                              text=True, timeout=patience(120))
        assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, directory, script, *options):
        """The number of a job that runs the script; what it says is in directory/said."""
        (directory / "job.sh").write_text(f"#!/bin/sh\n{script}")
        words = ["--parsable", f"--chdir={directory}", f"--output={directory}/said", "--open-mode=append", *options, directory / "job.sh"]
        return int(self.run("sbatch", *words))

    def job(self, number):
        """Of a job: its state, exit status, how often it was started again.  One that was put back would wait for two minutes."""
        words = dict(word.split("=", 1) for word in self.run("scontrol", "show", "-o", "job", number).split() if "=" in word)
        if words["JobState"] == "PENDING" and words["EligibleTime"] not in ("Unknown", "N/A"):
            eligible = datetime.datetime.fromisoformat(words["EligibleTime"])
            if eligible - datetime.datetime.now() > datetime.timedelta(seconds=8):  # not at once: a slurmd may still be ending it
                self.run("scontrol", "update", f"JobId={number}", "StartTime=now+5")
        return words["JobState"], int(words["ExitCode"].split(":")[0]), int(words["Restarts"])

    def await_end(self, number, seconds=120):
        """The same of one that has ended."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        await_that(f"the end of job {number}", seconds, lambda: self.job(number)[0] in ended)
        return self.job(number)

    def close(self):
        subprocess.run(["scancel", "--full", "--user=root"], env=self.environment, capture_output=True)
        for daemon in reversed(self.daemons.values()):
            for pid in descendants(daemon.pid):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        subprocess.run(["umount", "-l", self.disk], check=True)
        for node in ("n0", "n1"):
            ip("link", "del", f"{self.tag}{node}o")
            ip("netns", "del", f"{self.tag}{node}")
        ip("link", "del", self.tag)


def processes():
    """The number and the command line of each."""
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except (FileNotFoundError, ProcessLookupError):
                pass
