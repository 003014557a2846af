"""Rows of the benchmark's table: the measured case, the peer, the ratio, and the aim."""

from collections import namedtuple
from statistics import median

GIB = 1 << 30
MIB = 1 << 20


FIELDS = "case ours peer_name peer unit ratio aim at_most requests"


class Row(namedtuple("Row", FIELDS, defaults=[""])):
    """One comparison; `ratio` is what the aim is about, a least value, or a greatest one if `at_most`. `requests`
    has those to a server: by zarrfs, by the peer, and the least possible."""

    @property
    def missed(self):
        if self.aim is None:
            return False
        return self.ratio > self.aim if self.at_most else self.ratio < self.aim


def speeds(case, peer_name, ours, peer, aim=None):
    """Returns the row that compares the speeds of reads, round by round."""
    return Row(
        case,
        median(map(speed, ours)),
        peer_name,
        median(map(speed, peer)),
        "MiB/s",
        median(theirs.seconds / mine.seconds for mine, theirs in zip(ours, peer)),
        aim,
        False,
    )


def since(ours, before):
    """Returns the rows that compare with an older build, if there is one."""
    return [speeds("", "zarrfs before", ours, before, 0.97)] if before else []


def speed(read):
    return read.bytes / MIB / read.seconds


def cost(reads, field="served"):
    """Returns the CPU seconds that a daemon spent on one GiB; over all rounds, since the kernel counts in 10 ms."""
    spent = sum(getattr(read, field) for read in reads)
    return spent * GIB / sum(read.bytes for read in reads)


def limit(case, what, value, unit, most):
    """Returns the row of a number that must not exceed another."""
    return Row(case, value, what, most, unit, value, most, True)


def lines(rows):
    """Returns the text of the table."""
    width = max(len(row.case) for row in rows)
    peers = max(len(row.peer_name) for row in rows)
    head = f"{'':<{width}} {'zarrfs':>10} {'':<{peers}} {'peer':>10}  {'unit':<11}"
    requests = "  requests: zarrfs / peer / least" if any(row.requests for row in rows) else ""
    text = [head + f"{'ratio':>7} {'aim':>9}{requests}"]
    for row in rows:
        numbers = f"{number(row.ours)} {row.peer_name:<{peers}} {number(row.peer)}"
        ratio = f"{row.ratio:7.2f}" if not row.at_most else f"{'':7}"
        line = f"{row.case:<{width}} {numbers}  {row.unit:<11}{ratio} {verdict(row):>9}"
        text.append(f"{line}  {row.requests}".rstrip())
    return text


def number(value):
    if value is None:
        return f"{'':>10}"
    return f"{value:>10.0f}" if value >= 100 else f"{value:>10.2f}"


def verdict(row):
    if row.aim is None:
        return ""
    sign = "<=" if row.at_most else ">="
    return f"{sign}{row.aim:g} {'MISSED' if row.missed else 'ok'}"
