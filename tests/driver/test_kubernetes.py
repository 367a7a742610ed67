"""packaging/kubernetes-*.yaml against the schemas of Kubernetes, where `make bridges` has installed them; of JobSet, which is no
part of Kubernetes, the fields of its reference that may be used."""
import copy
import json
import os
import re
import subprocess

import pytest
from conftest import ROOT

PYTHON = ROOT / os.environ.get("BUILD", "build") / "bridges/bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no schemas of Kubernetes: make bridges")
CHECK = """
import json, sys, kubernetes_validate
for document in json.load(sys.stdin):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
"""
READ = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
JOBSET = {"network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
          "failurePolicy": {"maxRestarts", "rules", "restartStrategy"}}


def documents(name):
    said = subprocess.run([PYTHON, "-c", READ, ROOT / "packaging" / name], check=True, capture_output=True, text=True).stdout
    return json.loads(said)


def is_valid(*parts):
    return subprocess.run([PYTHON, "-c", CHECK], input=json.dumps(parts), capture_output=True, text=True).returncode == 0


def job_of(jobset):
    """What a JobSet makes of its template."""
    spec, (replicated,) = jobset["spec"], jobset["spec"]["replicatedJobs"]
    assert set(spec) == {"network", "failurePolicy", "replicatedJobs"} and set(replicated) == {"name", "replicas", "template"}
    assert all(set(spec[name]) <= fields for name, fields in JOBSET.items())
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gpt2-rank-0"}, **replicated["template"]}


def test_files_fit_their_schemas():
    service, job = documents("kubernetes-job.yaml")
    assert is_valid(service, job) and is_valid(job_of(*documents("kubernetes-jobset.yaml")))
    for change in ({"completionMode": 3}, {"complitions": 4}):  # the schemas notice
        other = copy.deepcopy(job)
        other["spec"].update(change)
        assert not is_valid(other)


@pytest.mark.parametrize("name", ["kubernetes-job.yaml", "kubernetes-jobset.yaml"])
def test_ranks_and_options(trainer, name):
    """As many ranks as pods, and each option is one of trainers."""
    *_, document = documents(name)
    job = job_of(document) if document["kind"] == "JobSet" else document
    said = job["spec"]["template"]["spec"]["containers"][0]["args"][0]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(re.search("--ranks ([0-9]+)", said)[1])
    known = subprocess.run([trainer("tiny.mdl") / "trainer", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"{option} " in known or f"{option}\n" in known for option in re.findall("--[a-z-]+", said))
