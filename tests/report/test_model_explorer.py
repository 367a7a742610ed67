"""mpc report and mpc print --model-explorer: graphs for Google's Model Explorer, against the report and the IR's text."""
import json
import re
import subprocess

import pytest

from conftest import MPC, ROOT

GPT2 = ROOT / "examples/gpt2.mdl"


def run(*command):
    return subprocess.run([str(c) for c in (MPC, *command)], check=True, capture_output=True, text=True).stdout


def check(graphs):
    """Each edge comes from a result of a node that stands before it; groups and links exist."""
    names = {graph["id"] for graph in graphs}
    for graph in graphs:
        outputs = {}
        for node in graph["nodes"]:
            assert node["id"] not in outputs
            for number, edge in enumerate(node.get("incomingEdges", [])):
                assert edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]]
                assert edge["targetNodeInputId"] == str(number)
            outputs[node["id"]] = {output["id"] for output in node.get("outputsMetadata", [])}
            assert set(node.get("subgraphIds", [])) <= names


def total(graphs, key):
    return sum(float(attribute["value"]) for graph in graphs for node in graph["nodes"] for attribute in node.get("attrs", [])
               if attribute["key"] == key)


@pytest.mark.parametrize("mesh", ["dp=1", "dp=2,tp=2"])
def test_costs_are_those_of_the_report(mesh, tmp_path):
    said = json.loads(run("report", GPT2, "--mesh", mesh, "--json", "--model-explorer", tmp_path / "g.json"))
    graphs = json.loads((tmp_path / "g.json").read_text())["graphs"]
    check(graphs)
    assert total(graphs, "FLOPs a step") == pytest.approx(said["work"]["rank"], rel=1e-6)
    assert total(graphs, "bytes sent a step") == pytest.approx(said["communication"]["sent"], rel=1e-6)


def test_a_dump_has_a_node_for_each_op(tmp_path):
    run("compile", GPT2, "--no-cc", "-o", tmp_path, "--dump-ir", tmp_path / "ir")
    for dump in ("00-lower", "08-collectives", "20-memory"):
        text = run("print", tmp_path / f"ir/{dump}.mir", "--model-explorer", tmp_path / "g.json")
        graphs = json.loads((tmp_path / "g.json").read_text())["graphs"]
        check(graphs)
        ops = re.findall(r"^ +%[^=\n]*= (\w+)", text, re.M)
        labels = [node["label"] for graph in graphs for node in graph["nodes"]
                  if node["namespace"] != "parameters" and node["label"] != "results"]
        assert sorted(labels) == sorted(ops)
        assert sorted(graph["id"] for graph in graphs) == sorted(re.findall(r"^  func (?:\w+ )?@([\w.]+)", text, re.M))
        if dump == "00-lower":  # groups are the paths of the model
            assert "h/attn/q" in {node["namespace"] for graph in graphs for node in graph["nodes"]}
