#!/usr/bin/python3
"""The JSON log of a trainer as an offline run of Weights & Biases (pip install wandb), which `wandb sync` sends:

    wandb_log.py LOG [--project NAME] [--name NAME]

Of a list, expert_load, each number has a name of its own, expert_load/0."""
import argparse
import json

import wandb


def numbers_of(entry):
    for name, value in entry.items():
        for i, one in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(one, (int, float)) and name != "step":
                yield (name if i is None else f"{name}/{i}"), one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--project", default="mpc")
    parser.add_argument("--name")
    given = parser.parse_args()
    run = wandb.init(project=given.project, name=given.name, mode="offline", settings=wandb.Settings(console="off"))
    with open(given.log) as lines:
        for line in lines:
            if line.endswith("\n"):  # the last one may be in writing
                entry = json.loads(line)
                run.log(dict(numbers_of(entry)), step=entry["step"])
    run.finish()


if __name__ == "__main__":
    main()
