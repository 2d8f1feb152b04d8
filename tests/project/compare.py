"""`palimpsa compare` from the outside: a sweep written by hand, its means, differences and times by hand, its figures, and refusals."""
import pathlib, re, tempfile

from outside import run


def palimpsa(*words, code=0):
    shown = run(*words, code=code)
    return shown if code else shown.decode()


def write(folder, accuracy):
    """accuracy: model -> seed -> one for each stage of 64, 128 and 256 tokens. A run learns at ten times its seed."""
    (folder / "curves").mkdir(parents=True)
    rows = ["model,lr,seed,stage,length,pairs,accuracy,steps"]
    for model, seeds in accuracy.items():
        for seed, stages in seeds.items():
            for k, value in enumerate(stages):
                rows.append(f"{model},2e-3,{seed},{k + 1},{64 << k},{16 << k},{value:.6f},{100 * (k + 1)}")
            lines = ["step,stage,loss,train_accuracy,accuracy,n_t,ratio"]
            for step in range(10, 310, 10):
                learned = stages[-1] > 0.5 and step >= 10 * seed
                lines.append(f"{step},{(step - 1) // 100 + 1},{1 / step:.5g},{0.8 if learned else 0.1},{'' if step % 50 else 0.5},{'' if step % 50 else step},")
            (folder / f"curves/{model.replace(':', '-')}-lr2e-3-seed{seed}.csv").write_text("\n".join(lines) + "\n")
    (folder / "results.csv").write_text("\n".join(rows) + "\n")


with tempfile.TemporaryDirectory() as root:
    root = pathlib.Path(root)
    sweep = root / "sweep"
    # with is ahead of without by .1, .2 and .3; the seed adds as much to both, except that it halves the last difference of seed 4
    write(sweep, {"d": {s: [0.5 + s / 100, 0.6, 0.9 + s / 100] for s in (1, 2, 3, 4)},
                  "d-wo:head-dim=8": {s: [0.4 + s / 100, 0.4, 0.6 + s / 100 if s != 4 else 0.79] for s in (1, 2, 3, 4, 5)},
                  "gdn": {1: [0.1, 0.1, 0.1], 2: [0.2, 0.1, 0.3]}})
    said = palimpsa("compare", sweep, "--contrasts", "d/d-wo:head-dim=8,slope:d/d-wo:head-dim=8,d/gdn")
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in said.splitlines() if line.startswith("| ")]
    means = {row[0]: row for row in rows if len(row) == 7}
    assert means["d"][5].startswith("0.925 [") and means["d"][6] == "59.2" and means["d"][4] == "0.600 [0.600, 0.600]", means
    assert means["d-wo:head-dim=8"][2] == "5" and means["gdn"][2] == "2", means
    #  seeds, ahead, mean, bootstrap interval, t interval, p, adjusted
    tests = {row[0]: row[1:] for row in rows if len(row) == 8 and row[0] != "difference"}
    #  differences .3 .3 .3 .15: mean .2625; all of one sign, so p = 2/16; t of 3 degrees of freedom is 3.182, the deviation .075
    with_d = tests["d - d-wo:head-dim=8"]
    assert with_d[:3] == ["4", "4", "+0.263"] and with_d[4:] == ["+0.143 to +0.382", "0.125", "0.375"], tests
    low, high = map(float, with_d[3].split(" to "))
    assert 0.18 < low < 0.25 and high == 0.3, tests
    #  slopes over log2: (last - first)/2 = .1 .1 .1 .025
    slope = tests["slope of d - d-wo:head-dim=8"]
    assert slope[:3] == ["4", "4", "+0.081"] and slope[5] == "0.125", tests
    assert tests["d - gdn"][0] == "2" and tests["d - gdn"][5:] == ["0.500", "0.500"], tests
    times = {row[0]: row[1:] for row in rows if len(row) == 4}
    assert times["d"] == ["4", "4", "20"] and times["d-wo:head-dim=8"] == ["5", "5", "30"] and times["gdn"] == ["2", "0", "-"], times
    assert "d and gdn: log-rank p 0." in said, said

    # Without runs that never learned, and where none is left.
    write(root / "some", {"d": {s: [0.5, 0.6, 0.9 if s != 2 else 0.1] for s in (1, 2, 3)}, "e": {s: [0.5, 0.6, 0.7] for s in (1, 2, 3)}})
    for words, mean, seeds in (([], "-0.067", "3"), (["--passed"], "+0.200", "2"), (["--passed", "--level", "0.9"], "-", "0")):
        said = palimpsa("compare", root / "some", "--contrasts", "d/e", *words)
        assert re.search(rf"\| d - e \| {seeds} \| \d \| {re.escape(mean)} \|", said) and said.startswith("Only runs") == bool(words) and "nan" not in said, said

    # An endpoint of two lengths: differences (.1 + .2)/2, (.2 + .3)/2, ..., the last with .15 for .3.
    for lengths, mean in (("64,128", "+0.150"), ("128,256", "+0.231"), ("256", "+0.263")):
        said = palimpsa("compare", sweep, "--contrasts", "d/d-wo:head-dim=8", "--endpoint", lengths)
        assert f"| d - d-wo:head-dim=8 | 4 | 4 | {mean} |" in said and f"of {lengths.replace(',', ', ')} tokens, paired" in said, said

    # Branches: rows of one seed on two data seeds are averaged, the base has stages of its own, and another column is compared.
    (root / "branches").mkdir()
    branches = ["model,lr,seed,stage,length,pairs,accuracy,steps,data_seed,loss"]
    for seed in (1, 2, 3):
        branches.append(f"base,4e-3,{seed},1,64,16,0.9,100,{seed},0.1")
        for data, (control, switched) in ((1000 + seed, (0.40, 0.42)), (2000 + seed, (0.44, 0.44))):
            branches += [f"control,4e-3,{seed},2,128,32,{control},100,{data},{2 - control}", f"switched,4e-3,{seed},2,128,32,{switched},100,{data},{1.5 - switched}"]
    (root / "branches/results.csv").write_text("\n".join(branches) + "\n")
    for words, mean, shown in (((), "+0.010", "0.420 [0.420, 0.420]"), (("--column", "loss"), "-0.510", "1.580 [1.580, 1.580]")):
        said = palimpsa("compare", root / "branches", "--contrasts", "switched/control", *words)
        assert f"| switched - control | 3 | {3 if mean[0] == '+' else 0} | {mean} |" in said and f"| control | 4e-3 | 3 | - | {shown} |" in said, said

    for kind in ("length", "differences", "survival", "dynamics"):
        palimpsa("compare", sweep, "--contrasts", "d/gdn", "--figure", kind, "--out", root / f"{kind}.svg")
        drawn = (root / f"{kind}.svg").read_text()
        palimpsa("compare", sweep, "--contrasts", "d/gdn", "--figure", kind, "--out", root / f"{kind}.svg")
        assert drawn.startswith("<?xml") and len(drawn) > 5000 and drawn == (root / f"{kind}.svg").read_text(), kind

    for words, says in (((sweep, "--contrasts", "d"), "expected MODEL/MODEL"), ((sweep, "--contrasts", "d/e"), "no rows of a model 'e'"), ((sweep, "--lr", "1e-3"), "no rows at the rate"),
                        ((sweep, "--figure", "length"), "go together"), ((sweep, "--figure", "pie", "--out", root / "x.svg"), "expected length"),
                        ((sweep, "--figure", "differences", "--out", root / "x.svg"), "needs --contrasts"), ((sweep, "--figure", "length", "--out", root / "x.gif"), ".svg or .png"),
                        ((sweep, "--endpoint", "64,65"), "no stage has a length of '65'"), ((sweep, "--column", "loss"), "there is no column 'loss'"),
                        ((root / "absent",), "cannot open"), ((), "expected the directory")):
        assert says in palimpsa("compare", *words, code=2), (words, says)
    assert not list(root.glob("x.*")), "a refused figure was written"
    results = (sweep / "results.csv").read_text()
    (sweep / "results.csv").write_text(results + "d,4e-3,9,1,64,16,0.5,100\n")
    assert "rates 2e-3 and 4e-3; give one by --lr" in palimpsa("compare", sweep, code=2)
    assert "| d | 2e-3 | 4 |" in palimpsa("compare", sweep, "--lr", "2e-3")
    (sweep / "results.csv").write_text(results + "d,2e-3,1,4\n")
    assert "is not a row" in palimpsa("compare", sweep, code=2)
    (sweep / "results.csv").write_text(results.splitlines()[0] + "\n")
    assert "no rows" in palimpsa("compare", sweep, code=2)
    (sweep / "results.csv").write_text(results)
    curve = sweep / "curves/d-lr2e-3-seed1.csv"
    curve.write_text("loss\n1\n")
    assert "a line has no step" in palimpsa("compare", sweep, code=2)
    curve.unlink()
    assert "seed1.csv" in palimpsa("compare", sweep, code=2)
print("ok")
