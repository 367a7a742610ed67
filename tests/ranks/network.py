"""Machines, as ranks see them: network namespaces with names and boot ids of their own, joined by links of a rate (iproute2, as root)."""
import contextlib
import itertools
import os
import re
import shlex
import subprocess

NUMBERS = itertools.count()


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


def shaped(rate, frame):
    """As a link of that rate ("50mbit") and of frames of so many bytes: tokens for some milliseconds are kept, since a busy machine sends
    late, but a message that comes after a pause takes hardly less than the others: they may be spent at a rate that is 0.5 % higher."""
    number, unit = re.fullmatch(r"([\d.]+)([kmg])bit", rate).groups()
    each_second = float(number) * {"k": 1e3, "m": 1e6, "g": 1e9}[unit] / 8
    return ["tbf", "rate", rate, "latency", "50ms", "burst", max(32_000, int(5e-3 * each_second)), "peakrate", f"{8.04 * each_second:.0f}bit",
            "mtu", max(frame + 2500, int(1.5e-4 * each_second))]


class NoNetwork(Exception):
    """Namespaces, or the programs that make them, are not there."""


class Network:
    """`count` machines: two have one link, more have one each to a switch.  A link carries `rate` in each direction, in frames of at most
    `frame` bytes."""

    def __init__(self, folder, count=2, rate="1gbit", frame=1500):
        tag = f"mpc{os.getpid()}-{next(NUMBERS)}"
        self.folder, self.names, self.switch = folder, [f"{tag}-{i}" for i in range(count)], f"{tag}-switch"
        try:
            self.make(rate, frame)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNetwork(f"no network namespaces here: {getattr(error, 'stderr', None) or error}") from error

    def make(self, rate, frame):
        for name in self.names:
            ip("netns", "add", name)
        if len(self.names) == 2:
            ip("link", "add", "net", "netns", self.names[0], "type", "veth", "peer", "name", "net", "netns", self.names[1])
        else:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            ip("-n", self.switch, "link", "set", "switch", "up")
        for i, name in enumerate(self.names):
            if len(self.names) > 2:
                ip("link", "add", "net", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
                ip("-n", self.switch, "link", "set", f"port{i}", "master", "switch", "mtu", frame, "up")
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "net")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "net", "mtu", frame, "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "net", "root", *map(str, shaped(rate, frame))], check=True,
                           capture_output=True, text=True)
            (self.folder / f"boot-{i}").write_text(f"00000000-0000-0000-0000-{i:012}\n")

    def address(self, machine):
        return f"10.97.0.{machine + 1}"

    def within(self, machine, *command):
        """The command that runs on a machine, with the number of its own process."""
        boot = "/proc/sys/kernel/random/boot_id"
        script = f'mount --bind "{self.folder}/boot-{machine}" {boot} && hostname machine{machine} && exec "$@"'
        return ["ip", "netns", "exec", self.names[machine], "unshare", "--mount", "--uts", "sh", "-c", script, "sh", *command]

    def mpirun(self, *command):
        """A rank on each machine, of OpenMPI: it starts them by an agent in place of ssh, and they have only the link."""
        agent = self.folder / "agent"
        cases = [f'{self.address(i)}) exec {shlex.join(self.within(i, "sh", "-c"))} "$*" ;;' for i in range(len(self.names))]
        agent.write_text("\n".join(["#!/bin/sh", "host=$1; shift", "case $host in", *cases, "esac"]) + "\n")
        agent.chmod(0o755)
        hosts = ",".join(f"{self.address(i)}:1" for i in range(len(self.names)))
        options = {"plm_rsh_agent": agent, "btl": "tcp,self", "btl_tcp_if_include": "net", "oob_tcp_if_include": "net"}
        return self.within(0, "mpirun", *(word for name, value in options.items() for word in ("--mca", name, str(value))),
                           "--bind-to", "none", "--host", hosts, "-n", str(len(self.names)), *command)

    def set(self, machine, state):
        """Its link: up or down."""
        ip("-n", self.names[machine], "link", "set", "net", state)

    def sent(self, machine):
        """The bytes that it has sent so far."""
        counter = ["ip", "netns", "exec", self.names[machine], "cat", "/sys/class/net/net/statistics/tx_bytes"]
        return int(subprocess.run(counter, check=True, capture_output=True).stdout)

    def close(self):
        for name in (*self.names, self.switch):
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)
