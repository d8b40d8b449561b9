"""The charts of a page as the browser drew them: each has curves with points inside its frame, ticks that are numbers
and do not lie on each other, and the names of axes. usage: check_page.py DOM CHART…"""
import re
import sys
from html.parser import HTMLParser


class Charts(HTMLParser):
    """What each figure holds."""

    def __init__(self):
        super().__init__()
        self.charts, self.chart, self.text = {}, None, None

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag == "figure":
            self.chart = {"series": 0, "paths": [], "bars": [], "ticks": [], "names": []}
            self.charts[a.get("data-chart")] = self.chart
        if self.chart is None:
            return
        if tag == "svg" and a.get("role") == "img":
            self.chart["box"] = [float(n) for n in a["viewbox"].split()]
        elif tag == "g" and a.get("class") == "series":
            self.chart["series"] += 1
        elif tag == "path" and a.get("class") == "curve":
            self.chart["paths"].append(a["d"])
        elif tag == "rect" and "data-part" in a:
            self.chart["bars"].append(float(a["width"]))
        elif tag == "text":
            self.text = (a, "")

    def handle_data(self, data):
        if self.text:
            self.text = (self.text[0], self.text[1] + data)

    def handle_endtag(self, tag):
        if tag == "figure":
            self.chart = None
        if tag == "text" and self.text and self.chart is not None:
            a, text = self.text
            kind = "ticks" if "tick" in a.get("class", "") else "names"
            self.chart[kind].append((a.get("class", ""), float(a["x"]), float(a["y"]), text))
            self.text = None


def check(name, chart):
    """Complaints about one chart."""
    if "box" not in chart:
        yield "has no picture"
        return
    _, _, width, height = chart["box"]
    drawn = [path for path in chart["paths"] if path]
    if not drawn and not any(bar > 0 for bar in chart["bars"]):
        yield "has neither a curve nor a bar"
    for path in drawn:
        points = [tuple(map(float, pair.split(","))) for pair in re.findall(r"[ML]([^ML]+)", path)]
        outside = [p for p in points if not (0 <= p[0] <= width + 1 and -1 <= p[1] <= height + 1)]
        if outside:
            yield f"has points outside its frame: {outside[:3]}"
    xs = [tick for tick in chart["ticks"] if tick[0].startswith("x")]
    if len(xs) < 2:
        yield "has fewer than two ticks along"
    if any("NaN" in tick[3] or tick[3] == "" for tick in chart["ticks"]):
        yield "has ticks that are no numbers"
    if not any(kind == "x name" for kind, *_ in chart["names"]):
        yield "has an axis without a name"
    spans = sorted((x - 3.5 * len(text), x + 3.5 * len(text), text) for _, x, _, text in xs)
    for left, right in zip(spans, spans[1:]):
        if left[1] > right[0]:
            yield f"has ticks on each other: {left[2]} and {right[2]}"


def main():
    parser = Charts()
    with open(sys.argv[1], encoding="utf-8") as file:
        parser.feed(file.read())
    complaints = []
    for name in sys.argv[2:]:
        chart = parser.charts.get(name)
        found = ["is not there"] if chart is None else list(check(name, chart))
        complaints += [f"{sys.argv[1]}: chart {name} {what}" for what in found]
    if complaints:
        sys.exit("\n".join(complaints))


main()
