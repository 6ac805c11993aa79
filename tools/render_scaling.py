"""The measured part of docs/scaling.md: audits, constants, and what they say about a cluster. All numbers come from shards.json."""

import math
from dataclasses import dataclass

RECORDS, FEATURES, CLASSES = 10**9, 4096, 10**5
COLUMNS = 9  # of float64 a record that the driver holds
READS = 5  # of the features, a run without float32 products
KEPT_SHARDS = 4  # a worker


@dataclass(frozen=True)
class Cluster:
    """What is assumed, not measured: machines, cores of each, memory of the driver."""

    machines: int = 125
    cores: int = 8
    driver_bytes: float = 1e12

    @property
    def words(self):
        """In a sentence."""
        return f"{self.machines} machines of {self.cores} cores ({self.machines * self.cores:,} in all), one worker with threads={self.cores} each"


@dataclass(frozen=True)
class Need:
    """Hours of each resource, and bytes of the driver's memory."""

    name: str
    kind: str
    read: float
    compute: float
    sums: float
    inverse: float
    driver: float

    def binding(self, cluster):
        """The resource that decides."""
        if self.driver > cluster.driver_bytes:
            return "memory of the driver"
        times = {
            "reading": self.read,
            "arithmetic of the workers": self.compute,
            "sums to the driver": self.sums,
            "the inverse": self.inverse,
        }
        return max(times, key=times.get)

    def row(self, cluster):
        """Of the table."""
        hours = " | ".join(hour(value) for value in (self.read, self.compute, self.sums, self.inverse))
        return f"| {self.name} | {self.kind} | {hours} | {size(self.driver)} | **{self.binding(cluster)}** |"


def size(value):
    """Bytes for people."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(max(int(math.log10(value) // 3), 0), len(units) - 1)
    scaled = value / 1000**power
    return f"{scaled:.3g} {units[power]}" if scaled < 1000 else f"{scaled:,.0f} {units[power]}"


def hour(value):
    """Hours for people: minutes below one, days from two on."""
    if value < 1 / 60:
        return "< 1 min"
    if value < 1:
        return f"{60 * value:.0f} min"
    if value < 48:
        return f"{value:.1f} h"
    return f"{value / 24:,.0f} days" if value < 24 * 3650 else f"{value / 24 / 365:,.0f} years"


def pairs(classes, d):
    """Numbers of the pair sums: m(m − 1)/2 pairs of classes × d(d + 1)/2 of features."""
    return classes * (classes - 1) // 2 * (d * (d + 1) // 2)


def exact_need(constants, cluster, n, d, m):
    """The exact scores of n records, d features with the bias, m classes (1: one logit)."""
    binary = [row for row in constants["passes"]["rows"] if row["m"] == 1]
    near = min(binary, key=lambda row: abs(row["d"] - d))["passes"]
    cores = cluster.machines * cluster.cores
    light = sum(near[name]["seconds_per_record"] for name in ("checks", "means", "second moments"))
    if m == 1:
        heavy = sum(near[name]["seconds_per_record"] for name in ("curvature", "columns"))
        numbers, order = d * d, d
    else:
        softmax = max((row for row in constants["passes"]["rows"] if row["m"] > 1), key=lambda row: row["d"])["passes"]
        heavy = (2 * pairs(m, d) + 2 * d * d) * sum(softmax[name]["seconds_per_flop"] for name in ("curvature", "columns"))
        numbers, order = pairs(m, d), (m - 1) * d
    rate = constants["reading"]["cold"]["bytes_per_second"]
    sums = KEPT_SHARDS * cluster.machines * 8 * (numbers + d * d)
    return Need(
        "one logit, or regression" if m == 1 else f"softmax, {m:,} classes",
        "exact",
        (READS + (m > 1)) * 4 * n * (d - 1) / rate / cluster.machines / 3600,
        n * (light + heavy) / cores / 3600,
        sums / constants["sums"]["bytes_per_second"] / 3600,
        order**3 * constants["inverses"]["rows"][-1]["seconds_per_cube"] / cluster.cores / 3600,
        24 * order**2 + 8 * COLUMNS * n + 8 * numbers * cluster.machines / 2,
    )


def ekfac_need(constants, cluster, n, d, m):
    """EK-FAC of the same head, as if its sums went over shards as well: 10nm(m + d) flops, m² and md numbers."""
    rate = constants["reading"]["cold"]["bytes_per_second"]
    factors = 8 * (5 * m * m + 20 * m * d)
    return Need(
        f"softmax, {m:,} classes",
        "EK-FAC",
        3 * 4 * n * (d - 1) / rate / cluster.machines / 3600,
        10 * n * m * (m + d) * constants["ekfac"]["seconds_per_flop"] / (cluster.machines * cluster.cores) / 3600,
        cluster.machines * 8 * (m * m + m * d) / constants["sums"]["bytes_per_second"] / 3600,
        (m**3 + d**3) * 10 * constants["inverses"]["rows"][-1]["seconds_per_cube"] / cluster.cores / 3600,
        factors + 8 * COLUMNS * n,
    )


def most_classes(cluster, n, d):
    """How many classes the driver can factor exactly."""
    m = 2
    while 24 * (m * d) ** 2 + 8 * COLUMNS * n + 8 * pairs(m + 1, d) * cluster.machines / 2 <= cluster.driver_bytes:
        m += 1
    return m


def audit_lines(constants):
    lines = [
        "| head | seconds | CPU seconds | ideal, s | ratio to the ideal | CPU ratio | memory of the driver | of a worker | load average |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, label in (("audit_binary", "one logit"), ("audit_softmax", "softmax, 10 classes")):
        row = constants[name]
        ideal = row["ideal_seconds"]["read"] + row["ideal_seconds"]["products"]
        lines.append(
            f"| {label} | {row['seconds']:.0f} | {row['cpu_seconds']:.0f} | {ideal:.0f} | {row['ratio']:.1f} | {row['cpu_ratio']:.1f} "
            f"| {size(row['peak_bytes_driver'])} | {size(row['peak_bytes_worker'])} | {row['load_average_before']:.1f} |"
        )
    return lines


def constant_lines(constants):
    lines = [
        "| d | m | checks and means, µs a record | second moments, Gflop/s | curvature, Gflop/s | columns, Gflop/s |",
        "|---|---|---|---|---|---|",
    ]
    for row in constants["passes"]["rows"]:
        found = row["passes"]
        light = 1e6 * (found["checks"]["seconds_per_record"] + found["means"]["seconds_per_record"])
        speeds = " | ".join(f"{1e-9 / found[name]['seconds_per_flop']:.0f}" for name in ("second moments", "curvature", "columns"))
        lines.append(f"| {row['d']:,} | {'1 logit' if row['m'] == 1 else row['m']} | {light:.1f} | {speeds} |")
    inverse = constants["inverses"]["rows"][-1]
    return [
        *lines,
        "",
        f"An inverse of order N takes {inverse['seconds_per_cube']:.1e}·N³ s in one thread (measured at N = {inverse['n']:,}); the disk reads "
        f"{size(constants['reading']['cold']['bytes_per_second'])}/s; sums come to the driver at {size(constants['sums']['bytes_per_second'])}/s "
        f"through loky (wall time, at a load average of {constants['sums']['load_average']:.1f}); EK-FAC runs at {1e-9 / constants['ekfac']['seconds_per_flop']:.0f} Gflop/s of the 10nm(m + d) it is counted at.",
    ]


def model_lines(constants, cluster, n, p, m):
    d, most = p + 1, most_classes(cluster, n, p + 1)
    needs = [exact_need(constants, cluster, n, d, classes) for classes in sorted({1, min(10, most), most, m})] + [
        ekfac_need(constants, cluster, n, d, m)
    ]
    ekfac, order = needs[-1], (m - 1) * d
    return [
        f"Assumed: {cluster.words}; each machine reads as fast as this one's disk; threads share a product without loss; the driver is one of "
        f"them with {size(cluster.driver_bytes)} of memory. {n:,} records × {p:,} float32 features are {size(4 * n * p)}.",
        "",
        "| head | columns | reading | arithmetic of the workers | sums to the driver | inverse or eigenvectors | memory of the driver | binds |",
        "|---|---|---|---|---|---|---|---|",
        *(need.row(cluster) for need in needs),
        "",
        f"- **Exact**: one logit, regression, and a softmax of up to {most} classes within {size(cluster.driver_bytes)}: what binds is "
        f"{needs[0].binding(cluster)}, and it is divided by the machines.",
        f"- **Not exact**: {m:,} classes × {p:,} features have a curvature of order {order:,}, {size(24 * order**2)} to factor: no cluster "
        f"does that. EK-FAC keeps {size(ekfac.driver)} and would take {hour(ekfac.compute)} on these machines, because it rotates every record's "
        f"{m:,} probabilities (m² flops a record): arithmetic binds, not memory. Its sums could go over shards like the others, which is not "
        f"built: today it runs on one machine. A few dozen records are then refined exactly, at 4nmd "
        f"= {4 * n * m * d:.0e} flops for every product with the curvature.",
        f"- **Outputs**: {n:,} × {m:,} logits would take {size(4 * n * m)} on disk, {m / p:.0f} times the features: at this size workers "
        "would have to compute them from features and weights, which is not built.",
    ]


def generated(constants):
    row = constants["audit_binary"]
    environment = row["environment"]
    return "\n".join(
        [
            f"### Two million records out of core\n\n{row['n']:,} records × {row['features']} float32 features ({size(row['bytes'])} in one file), "
            f"record scores and `model_risk`, {row['workers']} workers of one thread on {environment['cpu']} with {environment['cores']} cores, "
            "starting with nothing of the file in memory (where it fits, so later passes do not go to the disk). *Ideal*: reading the file once and the matrix products that cannot be avoided, "
            "shared by the workers. CPU seconds are of all processes; a load average above the cores says that other work took its share of the wall time. "
            "All columns but `margin_leverage`; memory is what is private to a process.\n",
            *audit_lines(constants),
            "\n### Constants\n\nCPU seconds of one thread. A record of one logit takes 2d², 4d² and 4d² flops in the three last passes; of a softmax "
            "m²d²/2 in each of the last two, in float32.\n",
            *constant_lines(constants),
            f"\n### {RECORDS:,} records, {FEATURES:,} features, {CLASSES:,} classes\n",
            *model_lines(constants, Cluster(), RECORDS, FEATURES, CLASSES),
        ]
    )
