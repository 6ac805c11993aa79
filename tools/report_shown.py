"""What a picture of a report's first screen shows, in words: stored beside it, so that a test can tell when it is old.

`python tools/report_shown.py docs/images/report` fails when a picture is not the one that its JSON
speaks of; tests/test_report_pages.py compares the JSON with the pages of today.

Pixels differ from machine to machine with the fonts, and times from run to run. What is compared is
the first screen's text (dates and ids aside, figures within a tenth), the kinds of elements that it
is made of, and the style sheets behind them.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import noshadow

AFTER, BEFORE = "after", "before"
SHEETS = [Path(noshadow.__file__).parent / "report" / "templates" / name for name in ("report.css", "first_screen.css")]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
WORD = re.compile(r"[^\W\d_]{2,}")
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
# A run on another machine may find a record more or less.
NEAR, SHARE = 2.0, 0.1
# The records' own rows and what is drawn are no words that a reader reads.
NOT_READ = "svg, .explorer-table tbody, option"

SHOWN = """(unread) => {
  const parts = [...document.querySelectorAll("main > header, main > .glance")];
  const inside = parts.flatMap((part) => [part, ...part.querySelectorAll("*")]);
  const kinds = new Set(inside.filter((one) => !one.closest(".riskiest")).map((one) => [one.tagName.toLowerCase(), ...[...one.classList].sort()].join(".")));
  const read = (nodes, skipped) => {
    const home = document.createElement("div");
    home.append(...nodes.map((node) => node.cloneNode(true)));
    home.querySelectorAll(skipped).forEach((one) => one.remove());
    home.querySelectorAll(".riskiest .id").forEach((one) => (one.textContent = "id"));
    document.querySelector("main").append(home);
    const text = home.innerText;
    home.remove();
    return text;
  };
  return { text: read(parts, "svg"), page: read([...document.querySelector("main").children], unread), kinds: [...kinds].sort() };
}"""


def shown(page):
    """What the open page shows: its first screen's lines, kinds of elements and style, and how many words the whole page has."""
    found = page.evaluate(SHOWN, NOT_READ)
    lines = [" ".join(line.split()) for line in DATE.sub("DATE", found["text"]).splitlines()]
    return {
        "lines": [line for line in lines if line],
        "kinds": found["kinds"],
        "style": hashlib.sha256(b"".join(path.read_bytes() for path in SHEETS if path.exists())).hexdigest(),
        "words": len(WORD.findall(found["page"])),
    }


def differences(stored, now):
    """Sentences on what is no longer as stored; none where the picture is current."""
    told = [f"the {name} of the first screen changed" for name in ("kinds", "style") if stored[name] != now[name]]
    if [NUMBER.sub("#", line) for line in stored["lines"]] != [NUMBER.sub("#", line) for line in now["lines"]]:
        return [*told, f"the text was {stored['lines']} and is {now['lines']}"]
    for before, after in zip(stored["lines"], now["lines"], strict=True):
        for old, new in zip(_numbers(before), _numbers(after), strict=True):
            if abs(old - new) > NEAR + SHARE * abs(old):
                told.append(f"{old:g} became {new:g} in: {after}")
    return told


def _numbers(line):
    return [float(text.replace(",", "")) for text in NUMBER.findall(line)]


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def stored(folder, prefix):
    """What the pictures of a prefix showed when they were made, by audit."""
    return json.loads((Path(folder) / f"{prefix}.json").read_text())


def store(folder, prefix, found):
    (Path(folder) / f"{prefix}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def checked(folder):
    """Say which picture is not the one that its JSON speaks of; None when all are."""
    held = {prefix: stored(folder, prefix) for prefix in (BEFORE, AFTER)}
    named = {f"{prefix}-{name}.png": one["picture"] for prefix, audits in held.items() for name, one in audits.items()}
    there = {path.name: digest(path) for path in folder.glob("*.png")}
    wrong = sorted({name for name in named.keys() | there.keys() if named.get(name) != there.get(name)})
    if digest(folder.parent / "report.png") != held[AFTER]["digits"]["picture"]:
        wrong.append("../report.png")
    return (
        f"report_shown: pictures must be those of before.json and after.json; others are {', '.join(wrong)}. Run make screenshot."
        if wrong
        else None
    )


if __name__ == "__main__":
    sys.exit(checked(Path(sys.argv[1])))
