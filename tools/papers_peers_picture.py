"""Chart of the tools one would pick instead, recall against processor seconds, as SVG from benchmarks/results/papers_peers.json."""

import re
from dataclasses import dataclass
from html import escape

from lood_pictures import COLOURS, Axis, ends_of, place, tick_text, ticks

WIDTH, HEIGHT = 900, 500
LEFT, RIGHT, TOP, BOTTOM = 60, 880, 34, 420
CHANCE = 0.05
LETTER, LINE = 5.9, 12
# Where a label may stand, as seen from its point: nearest first, right before left, above before below.
PLACES = [(side * (8 + 6 * far), rise) for far in range(8) for rise in (0, -13, 13, -26, 26, -39, 39, -52, 52) for side in (1, -1)]
FAMILIES = (
    ("noshadow", "noshadow audit", "circle"),
    ("loss|gradient|ART|cleanlab", "one model, other scores", "square"),
    ("RMIA|LiRA", "RMIA and LiRA, number of references", "diamond"),
    ("SACRO", "SACRO-ML's LiRA, number of shadow models", "triangle"),
)
SHORT = (
    (r"noshadow audit: ", ""),
    (r"ART: SHAPr", "SHAPr (ART)"),
    (r"cleanlab: label quality", "cleanlab"),
    (r"LiRA's d′, (\d+) references?", r"d′, \1"),
    (r"(RMIA|LiRA), (\d+) references?", r"\1, \2"),
    (r"SACRO-ML: LiRA, (\d+) shadow models?, (\w+).*", r"SACRO-ML, \1, \2"),
)


@dataclass(frozen=True)
class Point:
    """A method: where it stands, its label and its family's number."""

    x: float
    y: float
    label: str
    family: int


def short(method):
    """The method's name as a label: tools by name, references by number."""
    for long, brief in SHORT:
        method = re.sub(long, brief, method)
    return method


def mark(shape, x, y, colour):
    """A family's mark, told apart by its form too."""
    style = f'fill="{colour}" fill-opacity=".85"'
    if shape == "circle":
        return f'<circle cx="{x}" cy="{y}" r="5" {style}/>'
    if shape == "square":
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {style}/>'
    corners = {"diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)), "triangle": ((0, -6), (6, 5), (-6, 5))}[shape]
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)}" {style}/>'


def box_of(point, dx, dy):
    """Left, top, right, bottom of the label that begins (dx > 0) or ends there."""
    length = LETTER * len(point.label)
    left = point.x + dx - (length if dx < 0 else 0)
    return left, point.y + dy - LINE / 2, left + length, point.y + dy + LINE / 2


def overlaps(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def label_places(points, taken):
    """(dx, dy) of every point's label: the first place that is free of marks, of boxes `taken` and of the labels before it."""
    taken = [*taken, *((p.x - 6, p.y - 6, p.x + 6, p.y + 6) for p in points)]
    found = []
    for point in points:
        free = (
            (at, box)
            for at in PLACES
            if (box := box_of(point, *at))[0] > LEFT and box[2] < RIGHT + 15 and box[1] > TOP and box[3] < BOTTOM
            if not any(overlaps(box, other) for other in taken)
        )
        at, box = next(free, (PLACES[0], box_of(point, *PLACES[0])))
        taken.append(box)
        found.append(at)
    return found


def labelled(point, dx, dy):
    side = "e" if dx < 0 else "s"
    text = f'<text x="{point.x + dx:.1f}" y="{point.y + dy + 4:.1f}" class="{side}">{escape(point.label)}</text>'
    if abs(dx) <= 8 and abs(dy) <= 13:
        return text
    return f'<path d="M{point.x} {point.y}L{point.x + dx * 0.85:.1f} {point.y + dy:.1f}" class="l"/>{text}'


def frame(x_ends, y_ends, x_axis, y_axis):
    parts = []
    for value in ticks(x_ends, x_axis):
        at = place(value, x_ends, LEFT, RIGHT, True)
        parts.append(
            f'<path d="M{at} {TOP}V{BOTTOM}" class="g"/><text x="{at}" y="{BOTTOM + 16}" class="m">{tick_text(value, x_axis)}</text>'
        )
    for value in ticks(y_ends, y_axis):
        at = place(value, y_ends, BOTTOM, TOP, False)
        parts.append(f'<path d="M{LEFT} {at}H{RIGHT}" class="g"/><text x="{LEFT - 6}" y="{at + 4}" class="e">{round(100 * value)} %</text>')
    middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    parts.append(f'<text x="{middle[0]}" y="{BOTTOM + 34}" class="m">{escape(x_axis.label)}</text>')
    parts.append(f'<text transform="translate(14 {middle[1]}) rotate(-90)" class="m">{escape(y_axis.label)}</text>')
    return parts


def level(name, at):
    """A dashed line across, with its name above it at the left edge."""
    return f'<path d="M{LEFT} {at}H{RIGHT}" class="d"/><text x="{LEFT + 6}" y="{at - 4}" class="q">{escape(name)}</text>'


def peers_picture(entry):
    """Recall of LiRA's top 1 % in each method's top 5 % over the processor seconds it takes, as the text of an SVG file."""
    rows, noise = entry["rows"], entry["ceiling"]["recall_1_5"]
    x_axis = Axis("processor seconds beyond the trained model", log=True)
    y_axis = Axis("recall of LiRA's top 1 % in the top 5 %", ends=(0, min(1, 1.08 * max(noise, *(row["recall_1_5"] for row in rows)))))
    x_ends, y_ends = ends_of([row["processor"] for row in rows], x_axis), y_axis.ends
    points = [
        Point(
            place(row["processor"], x_ends, LEFT, RIGHT, True),
            place(row["recall_1_5"], y_ends, BOTTOM, TOP, False),
            short(row["method"]),
            next(k for k, (start, *_) in enumerate(FAMILIES) if re.match(start, row["method"])),
        )
        for row in rows
    ]
    levels = {
        "noise between halves of the truth": place(noise, y_ends, BOTTOM, TOP, False),
        "random order": place(CHANCE, y_ends, BOTTOM, TOP, False),
    }
    names = [(LEFT, at - LINE - 4, LEFT + 6 + LETTER * len(name), at) for name, at in levels.items()]
    description = "Recall of the records most at risk against processor seconds, a point a method"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">',
        "<style>text{font:11px sans-serif;fill:#222;paint-order:stroke;stroke:#fff;stroke-width:3px}.t{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}.g{stroke:#ddd}.q{fill:#666}"
        ".d{stroke:#666;stroke-dasharray:5 4}.l{stroke:#999;stroke-width:.8}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="18" class="t">{escape(entry["title"])}</text>',
        *frame(x_ends, y_ends, x_axis, y_axis),
        *(level(name, at) for name, at in levels.items()),
        *(labelled(point, *at) for point, at in zip(points, label_places(points, names), strict=True)),
        *(mark(FAMILIES[p.family][2], p.x, p.y, COLOURS[p.family]) for p in points),
    ]
    at = LEFT
    for number, (_, name, shape) in enumerate(FAMILIES):
        parts.append(mark(shape, at + 6, HEIGHT - 18, COLOURS[number]) + f'<text x="{at + 17}" y="{HEIGHT - 14}">{escape(name)}</text>')
        at += 44 + LETTER * len(name)
    return "\n".join([*parts, "</svg>"]) + "\n"
