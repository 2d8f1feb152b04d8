#!/usr/bin/env python3
"""Published families with one field of config.json changed to what it cannot be: a sentence names it, or it changes nothing.

    malformed_families.py PROGRAM GOLDEN
"""
import json, pathlib, sys, tempfile

from outside import call, check, golden

WRONG = [-1, "many", 1 << 40]


def shape(done):
    """What is computed, as far as inspect shows it."""
    seen = json.loads(done.stdout)
    return {key: seen[key] for key in ("blocks", "layer_blocks", "parameters", "hidden", "vocab", "tied")}


def places(config, inside):
    """The objects of a configuration whose fields are changed, by their key; "" is the outermost."""
    yield "", config
    for key in inside:
        if isinstance(config.get(key), dict):
            yield key, config[key]


met = tried = refused = 0
sanitized = "--sanitized" in sys.argv  # slower: a quarter
with tempfile.TemporaryDirectory() as temporary:
    for family in sorted((golden / "families").iterdir()):
        folder = pathlib.Path(temporary) / family.name
        folder.mkdir()
        (folder / "model.safetensors").symlink_to((family / "model.safetensors").resolve())
        whole = json.loads((family / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(whole))
        good = shape(call("inspect", folder, "--json"))
        for inside, fields in places(whole, ["text_config", "rope_parameters"]):
            for field, value in fields.items():
                for wrong in WRONG[: 2 if isinstance(value, (str, bool, type(None))) else 3]:
                    met += 1
                    if sanitized and met % 4:
                        continue
                    changed = json.loads(json.dumps(whole))
                    (changed[inside] if inside else changed)[field] = wrong
                    (folder / "config.json").write_text(json.dumps(changed))
                    done = call("inspect", folder, "--json", code=(0, 2))
                    tried += 1
                    refused += done.returncode == 2
                    if done.returncode == 0:
                        check(shape(done) == good, f"{family.name}: {inside} {field} = {wrong} changes the model without a word")
check(refused > tried / 4, f"only {refused} of {tried} are refused")
print(f"{tried} configurations of published families: {refused} refused, the others the same")
