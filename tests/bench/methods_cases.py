"""methods_cases.py - what methods.py trains, and what the papers claim of it.

A row is a method with its settings; a case is a row with a seed. Rows have equal
tokens of a replica; bytes, exchanges and seconds stand beside them in the table.
"""
import statistics

# Tokens of the first replica: 2,048 steps of 256 tokens, 64 rounds of H steps.
TOKENS = 524_288
PEERS = 4
H = 32
SEEDS = (1, 2, 3)
MODEL = """dim: 64
layers: 2
heads: 4
kv_heads: 4
ffn: 172
vocab: 256
seq: 128
tied: true
rope_theta: 10000
norm_eps: 0.00001
"""
BASE = ["inner.batch=2", "inner.micro_batch=2", "inner.lr=0.003",
        "inner.lr_min=0.0003", "inner.warmup=50", "lab.eval_tokens=131072",
        "lab.eval_every_tokens=0"]



def tiny(model):
    return model.replace("64", "16").replace("172", "32").replace("128", "32")


# Tokens a second of each machine, its lines in Mbit/s, delay in ms.
SPEEDS = {"1:1:1:1": (10000,) * 4, "4:4:2:1": (10000, 10000, 5000, 2500),
          "8:4:2:1": (10000, 5000, 2500, 1250),
          "10:9:7:3": (10000, 9000, 7000, 3000)}
DOUBLE = "{half} join 10\n{half} join 11\n{half} join 12\n{half} join 13\n"


def links(speeds):
    return "".join(f"{i} {s} {{m}} {{m}} 20\n" for i, s in enumerate(speeds))


def row(preset, *settings, speeds="", members="", peers=PEERS, times=1,
        curve=False, tied=True):
    """times: tokens of a replica, in those of the others."""
    return {"preset": preset, "set": BASE + list(settings),
            "model": MODEL if tied else MODEL.replace("tied: true",
                                                      "tied: false"),
            "tokens": TOKENS * times,
            "links": links(SPEEDS[speeds]) if speeds else "* 10000 {m} {m} 20\n",
            "members": members, "peers": peers, "curve": curve}


def outer(lr, mu, period=H):
    return (f"sync.period={period}", f"sync.outer_lr={lr}",
            f"sync.outer_momentum={mu}")


NEVER = "sync.period=1000000000"
ROWS = {
    "ddp": row("ddp"),
    "one replica, tokens of all four": row("diloco", NEVER, peers=1, times=4),
    "one replica, tokens of one": row("diloco", NEVER, peers=1),
}
for _h in (8, 32, 128):
    for _lr, _mu in ((1, 0), (0.7, 0.3), (0.7, 0.9)):
        ROWS[f"diloco {_lr}/{_mu}, H {_h}"] = row(
            "diloco", *outer(_lr, _mu, _h))
for _wire, _set in (("fp16", []), ("int8", []), ("e3m0", []), ("int2", []),
                    ("e3m0, error feedback", ["sync.error_feedback=true"]),
                    ("int2, error feedback", ["sync.error_feedback=true"])):
    ROWS[f"averaging, {_wire}"] = row(
        "diloco", *outer(1, 0), f"sync.wire={_wire.split(',')[0]}", *_set)
ROWS["streaming"] = row("streaming", f"sync.period={H}")
# Eight replicas, since pairs of four are nearly all of them.
ROWS["noloco, 8 peers"] = row("noloco", "sync.period=16", peers=8)
for _lr, _mu in ((1, 0), (0.7, 0.3), (0.7, 0.9)):
    ROWS[f"diloco {_lr}/{_mu}, bf16, 8 peers"] = row(
        "diloco", *outer(_lr, _mu, 16), "sync.wire=bf16", peers=8)
# The paper's headline is ADOPT with a beta2 whose half-life is longer than any
# period; AdamW's 0.95 forgets within 14 steps what an average brought.
ADOPT = ["inner.optimizer=adopt", "inner.beta1=0.95", "inner.beta2=0.9999"]
for _preset, _set in (
        ("local-adam", ["sync.period=16", "sync.period_u=16",
                        "sync.period_v=16"]),
        ("desloc", ["sync.period=16", "sync.period_u=48", "sync.period_v=96"]),
        ("favg-keep", ["sync.period=16"]), ("favg-reset", ["sync.period=16"])):
    ROWS[f"{_preset}, ADOPT"] = row(_preset, *_set, *ADOPT)
    ROWS[f"{_preset}, ADOPT, peers double"] = row(
        _preset, *_set, *ADOPT, members=DOUBLE, curve=True)
for _speeds in SPEEDS:
    _at = f", speeds {_speeds}"
    ROWS["averaging" + _at] = row("diloco", *outer(1, 0), speeds=_speeds)
    ROWS["async-naive .25/0" + _at] = row(
        "async-naive", *outer(0.25, 0), speeds=_speeds)
    ROWS["async-dn" + _at] = row(
        "async-dn", f"sync.period={H}", speeds=_speeds)
_at = ", speeds 4:4:2:1"
for _lr in (0.07, 0.175, 0.35):
    ROWS[f"async-naive {_lr}/.9" + _at] = row(
        "async-naive", *outer(_lr, 0.9), speeds="4:4:2:1")
# DyLU's tasks are whole steps: at these speeds they end up to a step apart.
# Those of 4:4:2:1 and 8:4:2:1 end together, with a grace or without.
ROWS["async-dn without its grace, speeds 10:9:7:3"] = row(
    "async-dn", f"sync.period={H}", "lab.grace_s=0", speeds="10:9:7:3")
for _lr in (0.4, 0.7):
    for _mu in (0, 0.5, 0.9):
        ROWS[f"eager {_lr}/{_mu}"] = row("eager", *outer(_lr, _mu))
for _test in ("norm", "augmented"):
    ROWS[f"adloco, {_test}"] = row(
        "adloco", f"sync.period={H}", "sync.trainers=2",
        f"sync.batch_test={_test}", "inner.batch=1")
# NoLoCo's experiment with routes (its section 5.2): two stages of four hosts.
STAGES = ["stages=2", "inner.micro_batch=1"]
ROUTES = {"fixed": ["lab.fixed_routes=1"], "random": []}
for _name, _set in (("no averaging", [NEVER]), ("noloco", ["sync.period=16"])):
    for _routes, _how in ROUTES.items():
        ROWS[f"2 stages, {_routes} routes, {_name}"] = row(
            "noloco", *_set, *STAGES, *_how, peers=8, tied=False)

CASES = {f"{_name}, seed {_seed}": {**_row, "seed": _seed}
         for _seed in SEEDS for _name, _row in ROWS.items()}


class Figures:
    """What is known of the rows: lists over the seeds that have run."""

    def __init__(self, results):
        self.results = results  # case name -> its JSON, or None

    def of(self, name, key="bits_per_byte"):
        found = [self.results(f"{name}, seed {s}") for s in SEEDS]
        return [r[key] for r in found if r and key in r]

    def megabytes(self, name):
        return statistics.mean(self.of(name, "bytes_sent_most")) / 1e6

    def hours(self, name):
        return statistics.mean(self.of(name, "virtual_hours"))


def spread(values):
    """Mean, and half of the range."""
    return (statistics.mean(values),
            (max(values) - min(values)) / 2 if len(values) > 1 else None)


def shown(values):
    mean, half = spread(values)
    return f"{mean:.4f}" + ("" if half is None else f" ± {half:.4f}")


def compared(a, b):
    """Change of b beside a, seed by seed, in per cent: its mean and half of its
    range. A seed gives both the same weights and text."""
    n = min(len(a), len(b))
    return spread([100 * (y / x - 1) for x, y in zip(a[:n], b[:n])])


def below(limit):
    """Promise: the change is at most so many per cent."""
    def verdict(change, noise):
        if change + noise <= limit:
            return "reproduced"
        if change - noise <= limit:
            return "undecided" if limit != 0 else "a tie"
        return ("reproduced in shape" if change <= 3 * limit
                else "not reproduced")
    return verdict


def better(change, noise):
    """Promise: less loss."""
    if abs(change) <= noise:
        return "a tie"
    return "reproduced" if change < 0 else "not reproduced"


def worse(change, noise):
    """Promise: the second is clearly worse."""
    return {"not reproduced": "reproduced",
            "reproduced": "not reproduced"}.get(better(change, noise), "a tie")


def judged(promise, change, noise, n):
    """The whole range is the limit of noise: the mean of three differences of
    two equal methods is beyond it in 8 of 100 draws, beyond half of it in 24.
    Fewer seeds are no evidence at all."""
    if n < len(SEEDS):
        return f"no verdict: {n} of {len(SEEDS)} seeds"
    return promise(change, 2 * noise)


# Claim, what is compared (first is the base), the promise, a remark.
CLAIMS = [
    ("DiLoCo is near DDP (arXiv:2311.08105)",
     "ddp", "diloco 0.7/0.9, H 32", below(1),
     "equal tokens, from scratch; its runs begin with a trained model; momentum "
     "of .9 and 64 rounds: the seeds differ by 0.48"),
    ("the same with plain averaging", "ddp", "diloco 1/0, H 32", below(1),
     "equal tokens, 32 times fewer bytes; from scratch. Half as far with H 8"),
    ("the same, H 8", "ddp", "diloco 1/0, H 8", below(1),
     "equal tokens, 8 times fewer bytes"),
    ("the outer step .7/.9 is better than averaging, H 32",
     "diloco 1/0, H 32", "diloco 0.7/0.9, H 32", better,
     "64 rounds; it is 14 and 18 % worse in two seeds, 1 % better in one"),
    ("the same, H 128", "diloco 1/0, H 128", "diloco 0.7/0.9, H 128", better,
     "16 rounds: momentum looks back over 10 of them; the paper has 128 behind "
     "a trained model"),
    ("the same with momentum .3, H 128", "diloco 1/0, H 128",
     "diloco 0.7/0.3, H 128", better, "16 rounds"),
    ("replicas are worth more than one replica with a replica's tokens",
     "one replica, tokens of one", "diloco 1/0, H 32", better, ""),
    ("fp16 on the wire costs nothing (arXiv:2407.07852)",
     "diloco 1/0, H 32", "averaging, fp16", below(0), ""),
    ("int8", "diloco 1/0, H 32", "averaging, int8", below(0), ""),
    ("four bits, E3M0 (arXiv:2501.18512)", "diloco 1/0, H 32",
     "averaging, e3m0", below(0), ""),
    ("E3M0 with error feedback", "diloco 1/0, H 32",
     "averaging, e3m0, error feedback", below(0), ""),
    ("two bits with error feedback (no paper)", "diloco 1/0, H 32",
     "averaging, int2, error feedback", below(0), ""),
    ("streaming is as good as DiLoCo (arXiv:2501.18512)",
     "diloco 0.7/0.9, H 32", "streaming", below(0),
     "better in each seed, as its base is unsteady; it is 0.05 below averaging, "
     "with an eighth of the bytes"),
    ("NoLoCo is a little better than DiLoCo with momentum .3 "
     "(arXiv:2506.10911)", "diloco 0.7/0.3, bf16, 8 peers", "noloco, 8 peers",
     better, "equal wire and period"),
    ("the same beside .7/.9", "diloco 0.7/0.9, bf16, 8 peers",
     "noloco, 8 peers", better, ""),
    ("the same beside averaging", "diloco 1/0, bf16, 8 peers",
     "noloco, 8 peers", better, "no claim of the paper"),
    ("DES-LOC is as good as Local Adam at half of the bytes "
     "(arXiv:2505.22549)", "local-adam, ADOPT", "desloc, ADOPT", below(0),
     "ADOPT .95/.9999; worse in each seed, by 1.3 to 4.3 %"),
    ("and better than moments that nobody averages", "favg-keep, ADOPT",
     "desloc, ADOPT", better, ""),
    ("and than moments that begin anew", "favg-reset, ADOPT", "desloc, ADOPT",
     better, ""),
    ("the same where peers double half way", "favg-keep, ADOPT, peers double",
     "desloc, ADOPT, peers double", better, ""),
    ("naive asynchrony is clearly worse (arXiv:2401.09135)",
     "averaging, speeds 4:4:2:1", "async-naive .25/0, speeds 4:4:2:1", worse,
     "equal tokens; rate 1/M without momentum, the best of four"),
    ("delayed Nesterov with DyLU is better than that",
     "async-naive .25/0, speeds 4:4:2:1", "async-dn, speeds 4:4:2:1", better,
     ""),
    ("the same, 8:4:2:1", "async-naive .25/0, speeds 8:4:2:1",
     "async-dn, speeds 8:4:2:1", better,
     "better in seeds 1 and 2; seed 3 of the second has 2.50"),
    ("a quorum of those within a step is better than one by one",
     "async-dn without its grace, speeds 10:9:7:3", "async-dn, speeds 10:9:7:3",
     better, "no claim of the paper"),
    ("and as good as waiting for all", "averaging, speeds 4:4:2:1",
     "async-dn, speeds 4:4:2:1", below(1), "equal tokens"),
    ("eager updates lose little to DiLoCo (arXiv:2502.12996)",
     "diloco 0.7/0.3, H 32", "eager 0.7/0.5", below(1),
     "three of six outer steps are as good (.7/0 has 2.543), beside the best of "
     "three; 63 rounds, each average comes a round late"),
    ("AdLoCo needs fewer exchanges for the same loss (arXiv:2508.18182)",
     "diloco 1/0, H 128", "adloco, norm", below(0),
     "16 exchanges, as averaging with H 128 has, of equal tokens: larger "
     "batches make fewer steps of these"),
    ("its norm test is better than the augmented one", "adloco, augmented",
     "adloco, norm", better, ""),
]
