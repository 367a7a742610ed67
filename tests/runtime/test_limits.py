"""What a trainer takes of its machine: processors of its affinity mask, what its cgroups grant, OMP_NUM_THREADS."""
import os
import re
import resource
import subprocess

import pytest
from conftest import read_dump

GB = 10 ** 9


@pytest.fixture
def machine(tmp_path, elsewhere, monkeypatch):
    """machine(mounts, cgroup, {file: content}, processors): what later runs of the trainer see."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def make(mounts, cgroup, files, processors=16, available=64 * GB):
        root = tmp_path / "machine"
        texts = {"/proc/self/mountinfo": "22 1 0:21 / /proc rw - proc proc rw\n" + mounts, "/proc/self/cgroup": cgroup,
                 "/proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {available // 1024} kB\n", **files}
        for name, text in texts.items():
            path = root / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {**elsewhere, "ELSEWHERE": root, "PROCESSORS": ",".join(map(str, range(processors))), "OMP_NUM_THREADS": ""}
    return make


def threads_of(run, tmp_path, data, **environment):
    (tmp_path / "dump").unlink(missing_ok=True)
    run("--data", "data.txt", "--steps", 1, TINY_DUMP="dump", **environment)
    return read_dump(tmp_path / "dump")["threads"][0]


V2 = "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = ("33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
V1_PATHS = "4:memory:/slurm/uid_0/job_7\n3:cpu,cpuacct:/slurm/uid_0/job_7\n2:cpuset:/x\n"
GROUP, CPU = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu,cpuacct"
CASES = {
    "no limit": (V2, "0::/\n", {}, 16),
    "max": (V2, "0::/a\n", {f"{GROUP}/a/cpu.max": "max 100000\n"}, 16),
    "own": (V2, "0::/a/b\n", {f"{GROUP}/a/b/cpu.max": "300000 100000\n"}, 3),
    "above": (V2, "0::/system.slice/job_1/step_0/task_0\n", {f"{GROUP}/system.slice/job_1/cpu.max": "250000 50000\n",
                                                           f"{GROUP}/system.slice/cpu.max": "max 100000\n"}, 5),
    "least of all levels": (V2, "0::/a/b/c\n", {f"{GROUP}/a/cpu.max": "200000 100000", f"{GROUP}/a/b/c/cpu.max": "900000 100000"}, 2),
    "less than one": (V2, "0::/a\n", {f"{GROUP}/a/cpu.max": "50000 100000"}, 1),
    "rounded down": (V2, "0::/a\n", {f"{GROUP}/a/cpu.max": "390000 100000"}, 3),
    "more than the mask": (V2, "0::/a\n", {f"{GROUP}/a/cpu.max": "9900000 100000"}, 16),
    "another one's": (V2, "0::/ab\n", {f"{GROUP}/a/cpu.max": "100000 100000"}, 16),
    "namespace": (V2, "0::/\n", {f"{GROUP}/cpu.max": "400000 100000"}, 4),
    "part of the hierarchy": (V2.replace("/ /sys", "/docker/4f /sys"), "0::/docker/4f/a\n",
                              {f"{GROUP}/a/cpu.max": "700000 100000", f"{GROUP}/cpu.max": "600000 100000"}, 6),
    "outside of the namespace": (V2, "0::/../other\n", {f"{GROUP}/cpu.max": "500000 100000"}, 5),
    "version 1": (V1, V1_PATHS, {f"{CPU}/slurm/cpu.cfs_quota_us": "200000\n", f"{CPU}/slurm/cpu.cfs_period_us": "100000\n",
                                 f"{CPU}/slurm/uid_0/job_7/cpu.cfs_quota_us": "-1\n",
                                 f"{CPU}/slurm/uid_0/job_7/cpu.cfs_period_us": "100000\n"}, 2),
    "both versions": (V1 + V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), V1_PATHS + "0::/user\n",
                      {f"{CPU}/slurm/uid_0/cpu.cfs_quota_us": "700000", f"{CPU}/slurm/uid_0/cpu.cfs_period_us": "100000"}, 7),
    "nothing to read": ("", "", {}, 16),
}


@pytest.mark.parametrize("mounts, cgroup, files, threads", CASES.values(), ids=CASES)
def test_threads_are_those_that_cgroups_grant(run, tmp_path, data, machine, mounts, cgroup, files, threads):
    there = machine(mounts, cgroup, files)
    assert threads_of(run, tmp_path, data, **there) == threads
    assert threads_of(run, tmp_path, data, **{**there, "OMP_NUM_THREADS": 9}) == 9


def test_threads_are_those_of_the_mask(run, tmp_path, data, machine):
    there = machine(V2, "0::/\n", {})
    assert threads_of(run, tmp_path, data, **{**there, "PROCESSORS": "3,5,1029"}) == 3
    assert threads_of(run, tmp_path, data, **{**there, "PROCESSORS": "7", "OMP_PROC_BIND": "true", "OMP_PLACES": "{0}"}) == 1
    del there["PROCESSORS"]
    one = min(os.sched_getaffinity(0))
    assert threads_of(run, tmp_path, data, **there, before=lambda: os.sched_setaffinity(0, {one})) == 1


def test_a_bound_thread_is_not_the_mask(run, tmp_path, data, machine):
    """OpenMP binds the first thread to one place before main()."""
    all_of_them = len(os.sched_getaffinity(0))
    there = machine(V2, "0::/\n", {})
    del there["PROCESSORS"]
    assert threads_of(run, tmp_path, data, **there, OMP_PROC_BIND="true", OMP_PLACES="cores") == all_of_them
    assert threads_of(run, tmp_path, data, **there, OMP_THREAD_LIMIT=1) == 1


@pytest.mark.parametrize("text", ["99999", "4097", "0", "-3", "abc", "3x", "2,x", "2,,3", "2,", "4,99999", " "])
def test_numbers_of_threads_that_are_none(refused, data, text):
    message = refused("--data", "data.txt", "--steps", 1, OMP_NUM_THREADS=text, status=2)
    assert f"OMP_NUM_THREADS='{text}' in the environment: a number of threads is from 1 to 4096" in message


def test_numbers_of_threads(run, refused, tmp_path, data):
    for text, threads in [("4,2", 4), (" 3 ", 3), ("2 , 1", 2)]:
        assert threads_of(run, tmp_path, data, OMP_NUM_THREADS=text) == threads
    assert "--threads must be between 1 and 4096" in refused("--steps", 0, "--threads", 99999, status=2)
    assert "--threads 3: OMP_THREAD_LIMIT of the environment allows 2" in refused("--steps", 0, "--threads", 3, OMP_THREAD_LIMIT=2, status=2)
    assert "OMP_NUM_THREADS 3: OMP_THREAD_LIMIT" in refused("--steps", 0, OMP_NUM_THREADS=3, OMP_THREAD_LIMIT=2, status=2)


def test_stacks_that_products_exceed(refused, data):
    small = lambda: resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))  # noqa: E731
    assert re.search(r"the stack may have \S+ kB, and products need 1 MiB; raise the limit \(ulimit -s\)",
                     refused("--data", "data.txt", "--steps", 1, before=small))
    assert "the stack of a thread has 524.29 kB, and products need 1 MiB; set OMP_STACKSIZE=4M" in refused(
        "--data", "data.txt", "--steps", 1, "--threads", 2, OMP_STACKSIZE="512k")


MEMORY = "/sys/fs/cgroup/memory"
STAT = "anon 5\nactive_file 1000000000\ninactive_file 500000000\nfile 99000000000\n"
MEMORIES = {
    "machine": (V2, "0::/a\n", {f"{GROUP}/a/memory.max": "max\n"}, "64.00 GB"),
    "above": (V2, "0::/a/b/c\n", {f"{GROUP}/a/memory.max": f"{5 * GB}\n", f"{GROUP}/a/memory.current": f"{2 * GB}\n",
                                  f"{GROUP}/a/b/memory.max": f"{50 * GB}\n"}, "3.00 GB"),
    "pages of files": (V2, "0::/a\n", {f"{GROUP}/a/memory.max": f"{5 * GB}", f"{GROUP}/a/memory.current": f"{2 * GB}",
                                       f"{GROUP}/a/memory.stat": STAT}, "4.50 GB"),
    "version 1": (V1, V1_PATHS, {f"{MEMORY}/slurm/memory.limit_in_bytes": f"{4 * GB}\n", f"{MEMORY}/slurm/memory.usage_in_bytes": f"{2 * GB}\n",
                                 f"{MEMORY}/slurm/memory.stat": "inactive_file 7\ntotal_inactive_file 500000000\n",
                                 f"{MEMORY}/memory.limit_in_bytes": "9223372036854771712\n",
                                 f"{MEMORY}/memory.usage_in_bytes": "9000000\n"}, "2.50 GB"),
}


@pytest.mark.parametrize("mounts, cgroup, files, said", MEMORIES.values(), ids=MEMORIES)
def test_memory_is_what_cgroups_grant(refused, machine, mounts, cgroup, files, said):
    there = machine(mounts, cgroup, files)
    assert f"and {said} are available; " in refused("--steps", 0, TINY_ARENA=1 << 52, **there)


@pytest.mark.parametrize("options", [("--save", "c.safetensors"), ("--save", "c.safetensors.index.json", "--save-files", 3),
                                     ("--trace", "trace.json")])
def test_open_files(run, tmp_path, data, options):
    """With few of them, a run is refused before its first step: it never fails where it writes what it has computed."""
    refused = 0
    for limit in range(4, 24):
        for path in tmp_path.glob("*.[stj]*n*"):
            path.unlink()
        done = subprocess.run([str(run.trainer), "--data", "data.txt", "--steps", "2", *map(str, options)], cwd=tmp_path,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
                              capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=60)
        refused += done.returncode == 1
        if done.returncode:
            assert "step 1" not in done.stdout + done.stderr, (limit, done)
            assert limit < 6 or f"its limit is {limit}; raise that" in done.stderr, (limit, done)
    assert 0 < refused < 12
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    run("--data", "data.txt", "--steps", 2, *options, "--overwrite",
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, soft)))
