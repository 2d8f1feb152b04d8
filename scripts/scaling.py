#!/usr/bin/env python3
"""How far training on several machines scales: a model of an update, checked against measurements of `palimpsa bench mpi`, and
extended to more machines and slower networks. Writes a table in Markdown and a figure.

    scripts/scaling.py --measured DIR --out docs/results

DIR holds one JSON file for each run of `bench mpi` (docs/results/scaling.md says which). With R ranks, P parameters of 4 bytes,
latency a and bandwidth b of a link, an update takes

    T = L + S + G               L: loss, gradients and AdamW of a rank's rows
    G = 4P (R-1)/R / b + 2 R a  sharing the parameters
    S = G on one machine, where the link is memory; 2 G over a network

Nothing is hidden after the backward pass, and over a network the sum of gradients takes twice the time of its bytes: so it was
measured. A file whose name ends in -1gbit.json was measured over a network of that speed, and is predicted from the speed alone.
"""
import argparse, json, math, pathlib

from figures import Figure

GBIT = 1e9 / 8
NETWORK_SHARE = 0.9  # of its nominal speed that a network gives


def update(ranks, learn, parameters, latency, bandwidth, over_network):
    """Seconds of an update."""
    share = 4 * parameters * (ranks - 1) / ranks / bandwidth + 2 * ranks * latency
    return learn if ranks == 1 else learn + (3 if over_network else 2) * share


def read(folder):
    """{file name without .json: {name of a measurement: its row}}"""
    return {p.stem: {row["name"]: row for row in json.loads(p.read_text())} for p in sorted(pathlib.Path(folder).glob("*.json"))}


def seconds(run, name):
    return run[name]["ns"] * 1e-9


def check_table(runs):
    """Predicted next to measured, for every run on two ranks."""
    lines = ["| run | link | latency | GB/s | update measured | stubbed | exposed | predicted | error |", "|---|---|---|---|---|---|---|---|---|"]
    worst = 0.0
    for name, run in runs.items():
        row = run["mpi.update"]
        if row["ranks"] == 1:
            continue
        measured, stubbed = seconds(run, "mpi.update"), seconds(run, "mpi.update.stubbed")
        # Two ranks share this machine's memory and caches: the stubbed update is what they can compute side by side.
        learn = stubbed
        link = name.split("-")[-1]  # "memory", "tcp", or a network by its nominal speed: "1gbit"
        network = float(link[:-4]) if link.endswith("gbit") else None
        bandwidth = network * GBIT * NETWORK_SHARE if network else row["link_gbs"] * 1e9
        guess = update(row["ranks"], learn, row["parameters"], row["latency_ns"] * 1e-9 / 2, bandwidth, network is not None)
        error = guess / measured - 1
        worst = max(worst, abs(error))
        lines.append(f"| {row['model']}, {row['shape']} | {link} | {row['latency_ns'] / 2000:.1f} us | {row['link_gbs']:.2f} | {measured * 1e3:.1f} ms | {stubbed * 1e3:.1f} ms | "
                     f"{100 * (measured - stubbed) / measured:.1f}% | {guess * 1e3:.1f} ms | {100 * error:+.1f}% |")
    return lines, worst


def efficiency(ranks, network, case):
    return case["learn"] / update(ranks, case["learn"], case["parameters"], 50e-6, network * GBIT * NETWORK_SHARE, True)


NODES = [2, 4, 8, 16, 32, 64, 128]
NETWORKS = [1, 10, 100]
SWEEP = 5 * 4 * 8  # runs of the paper: models, rates, seeds


def sweep_efficiency(ranks):
    """Every rank has whole runs, of one length: the last round may leave some idle. Nothing is exchanged."""
    return SWEEP / (ranks * math.ceil(SWEEP / ranks))


def predict_table(cases):
    lines = ["| model, tokens of a node and update | network | " + " | ".join(f"{n} nodes" for n in NODES) + " |", "|---|---|" + "---|" * len(NODES)]
    for case in cases:
        for network in NETWORKS:
            lines.append(f"| {case['name']} | {network} Gbit/s | " + " | ".join(f"{100 * efficiency(n, network, case):.0f}%" for n in NODES) + " |")
    lines.append("| the paper's sweep, on as many ranks | any | " + " | ".join(f"{100 * sweep_efficiency(n):.0f}%" for n in NODES) + " |")
    return lines


def figure(cases, path):
    """Speed-up over one node, both axes in powers of two; the last panel is the sweep, over one rank."""
    kinds = {1: "b", 10: "c", 100: "a", "sweep": "n"}
    panels = [{"name": case["name"], "axis": "nodes", "lines": {n: [(k, k * efficiency(k, n, case)) for k in [1] + NODES] for n in NETWORKS}} for case in cases]
    panels.append({"name": f"the paper's sweep, {SWEEP} runs", "axis": "ranks", "lines": {"sweep": [(k, k * sweep_efficiency(k)) for k in range(1, 129)]}})
    f = Figure(560, "Predicted: times faster than one node", "Times faster than one node, for 2 to 128 nodes and networks of 1, 10 and 100 Gbit/s")
    for i, network in enumerate(NETWORKS):
        f.text(100 * i, 42, f"{network} Gbit/s", kinds[network])
    f.text(300, 42, "thin: as many times faster as there are nodes, or ranks", "soft")
    for k, panel in enumerate(panels):
        left, top, wide, high = 40 + 360 * (k % 2), 80 + 245 * (k // 2), 280, 160
        place = lambda n, s: (left + math.log2(n) / 7 * wide, top + high - (math.log2(s) + 1) / 8 * high)  # from a half
        f.text(left, top - 8, panel["name"])
        for p in (0, 2, 4, 6):
            y = place(1, 2 ** p)[1]
            f.line(left, y, left + wide, y)
            f.text(left - 8, y + 4, str(2 ** p), "soft", "end")
        for p in (0, 2, 4, 6, 7):
            f.text(place(2 ** p, 1)[0], top + high + 18, str(2 ** p), "soft", "middle")
        f.line(*place(1, 1), *place(128, 128), "axis")
        for kind, points in panel["lines"].items():
            f.curve([place(*point) for point in points], kinds[kind])
        f.text(left + wide / 2, top + high + 38, panel["axis"], "soft", "middle")
    f.write(pathlib.Path(path).resolve())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--measured", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cores", type=int, default=16, help="of a node, of the kind that was measured")
    options = parser.parse_args()
    runs = read(options.measured)
    one = runs["170m-2-memory"]["mpi.update.stubbed"]  # two ranks side by side: a core's speed while its neighbour works
    tokens = int(one["shape"].split("T")[1])
    per_token = one["ns"] * 1e-9 / tokens / options.cores  # the cores of a node share its rows evenly
    cases = []
    for name, parameters, tokens in (("170M, 32k tokens", one["parameters"], 32768), ("760M, 32k tokens", 760e6, 32768), ("170M, 8k tokens", one["parameters"], 8192)):
        cases.append({"name": name, "parameters": parameters, "learn": per_token * tokens * parameters / one["parameters"]})
    check, worst = check_table(runs)
    out = pathlib.Path(options.out)
    (out / "scaling-measured.md").write_text("\n".join(check) + "\n")
    (out / "scaling-predicted.md").write_text("\n".join(predict_table(cases)) + "\n")
    figure(cases, out / "scaling.svg")
    print("\n".join(check), "", "\n".join(predict_table(cases)), f"\nlargest error of the model: {100 * worst:.1f}%", sep="\n")


if __name__ == "__main__":
    main()
