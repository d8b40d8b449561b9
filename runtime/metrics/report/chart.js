// Charts as SVG. A chart is drawn in the pixels it has, so that its text is as large as the page's. Text from the
// run's files is only ever put in as text, never as markup.
"use strict";

// The elements' namespace is that of the one <svg> the page was written with.
const svgNamespace = document.querySelector("svg").namespaceURI;

function svg(name, attributes, ...children) {
  const element = document.createElementNS(svgNamespace, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// ---- numbers

// The step between ticks: 1, 2 or 5 times a power of ten.
function tickStep(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0) || !isFinite(rough)) return 0;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  for (const factor of [1, 2, 5]) if (factor * power >= rough * 0.999) return factor * power;
  return 10 * power;
}

function ticks(low, high, count, least) {
  const step = Math.max(tickStep(low, high, count), least || 0);
  if (!(step > 0)) return { step: 1, at: [low] };
  const at = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && at.length < 50; ++i) at.push(i === 0 ? 0 : i * step);
  return { step, at };
}

// Ticks of an upright axis, which begins and ends with one, so that every height can be read off: some five steps.
function roundTicks([low, high]) {
  const rough = tickStep(low, high, 5), power = Math.pow(10, Math.floor(Math.log10(rough)));
  const range = (step) => [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  const off = (step) => { const [first, last] = range(step); return Math.abs(last - first - 5); };
  const step = [0.5, 1, 2, 5, 10].map((factor) => factor * power).reduce((best, other) => off(other) < off(best) ? other : best);
  const [first, last] = range(step), at = [];
  for (let i = first; i <= last; ++i) at.push(i === 0 ? 0 : i * step);
  return { step, at };
}

// A tick's label has the digits that its step needs.
function tickText(value, step) {
  const largest = Math.max(Math.abs(value), step);
  if (largest >= 1e7 || step < 1e-5) return value === 0 ? "0" : value.toExponential(step < largest / 10 ? 2 : 1);
  return fixed(value, Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 8));
}

// What divides bytes or seconds so that ticks are short, and what the result is called.
function bytesScale(most) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(Math.max(Math.floor(Math.log2(Math.max(most, 1)) / 10 + 1e-9), 0), 4);
  return { by: Math.pow(1024, unit), name: names[unit] };
}

function secondsScale(most) {
  if (most >= 7200) return { by: 3600, name: "hours" };
  if (most >= 300) return { by: 60, name: "minutes" };
  return { by: 1, name: "seconds" };
}

// ---- line charts

const frame = { top: 8, right: 14, bottom: 40, height: 264 };

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : null;
}

// Where the picture begins and ends, with some room where nothing varies. `zero`: it shows 0, so that heights can be compared.
function widened([low, high], zero, bounds) {
  if (zero) low = Math.min(low, 0), high = Math.max(high, 0);
  if (high > low) return [low, high];
  const room = Math.max(Math.abs(low) * 0.1, bounds ? (bounds[1] - bounds[0]) * 0.01 : 1e-6), result = [zero && low === 0 ? 0 : low - room, high + room];
  return bounds ? [Math.max(result[0], bounds[0]), Math.min(result[1], bounds[1])] : result;
}

// "M1,2L3,4M…": a new piece after each value that is not a number.
function pathOf(xs, ys) {
  let text = "", pen = "M";
  for (let i = 0; i < xs.length; ++i) {
    if (ys[i] === null || xs[i] === null) {
      pen = "M";
      continue;
    }
    text += pen + xs[i].toFixed(1) + "," + ys[i].toFixed(1);
    pen = "L";
  }
  return text;
}

function bandOf(xs, lows, highs) {
  const known = xs.map((_, i) => i).filter((i) => lows[i] !== null && xs[i] !== null);
  if (known.length < 2) return "";
  const ahead = known.map((i) => xs[i].toFixed(1) + "," + highs[i].toFixed(1));
  const back = known.reverse().map((i) => xs[i].toFixed(1) + "," + lows[i].toFixed(1));
  return "M" + ahead.join("L") + "L" + back.join("L") + "Z";
}

// The index whose x is nearest to `x`; xs ascend.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] === null || xs[middle] < x) low = middle; else high = middle;
  }
  return xs[high] !== null && (xs[low] === null || Math.abs(xs[high] - x) < Math.abs(xs[low] - x)) ? high : low;
}

// The pointer's place, so that a page that is drawn again still shows what it pointed at.
const pointer = { chart: null, x: 0 };

// {id, title, unit, zero, bounds, series: [{name, color, dash, marks, noisy, curve: {x, t, y, low, high}}], keys: [{name, color,
//  dash, marks}], axis: "step", "epoch" or "time", across: [first, last] of all charts, scale: {by, name}, percent}
class LineChart {
  constructor(options) {
    Object.assign(this, options);
    this.series = this.series.filter((one) => one.curve && one.curve.x.length > 0);
    this.by = this.scale ? this.scale.by : 1;
    const unit = this.scale ? this.scale.name : this.unit;
    this.figure = html("figure", { class: "card", "data-chart": this.id },
      html("figcaption", {}, html("h3", {}, this.title, html("span", { class: "unit" }, unit ? " (" + unit + ")" : "")), this.legend()));
    this.tip = html("div", { class: "tip", hidden: "" });
    this.plot = html("div", {});
    this.figure.append(this.plot, this.tip, saveButton(this.figure, this.title, this.id));
  }

  legend() {
    const legend = html("div", { class: "legend" });
    if (this.keys) legend.append(...this.keys.map((key) => html("span", {}, lineSwatch(key), key.name)));
    return legend;
  }

  xOf(curve) {
    if (this.axis !== "time") return curve.x;
    return curve.t.map((seconds) => seconds === null ? null : seconds / this.seconds.by);
  }

  // Must be in the page, which says how wide it is.
  draw() {
    this.width = Math.max(this.plot.clientWidth, 240);
    const every = [].concat(...this.series.map((one) => one.curve.t), this.axis === "time" ? this.across || [] : []);
    this.seconds = secondsScale((extent(every) || [0, 0])[1]);
    const own = [].concat(...this.series.map((one) => this.xOf(one.curve)));
    const xs = extent(own) && extent(own.concat(this.across ? this.across.map((x) => this.axis === "time" ? x / this.seconds.by : x) : []));
    const near = this.across && look.near && look.near.map((x) => this.axis === "time" ? x / this.seconds.by : x);
    const ys = this.heights(near);
    if (!xs || !ys) {
      this.plot.replaceChildren(html("p", { class: "soft" }, xs || this.axis !== "time" ? "No value here is a number." : "The times of these steps are not known."));
      return;
    }
    this.xRange = xs[0] === xs[1] ? [xs[0] - 1, xs[1] + 1] : [Math.min(xs[0], xs[0] > 0 && xs[0] < xs[1] * 0.2 ? 0 : xs[0]), xs[1]];
    if (near) this.xRange = near;
    const wide = roundTicks(widened(ys.map((y) => y / this.by), this.zero, this.bounds));
    this.yRange = [wide.at[0], wide.at[wide.at.length - 1]];
    const labels = wide.at.map((at) => tickText(at, wide.step));
    this.left = 14 + 7 * Math.max(...labels.map((label) => label.length), 2);
    const root = svg("svg", { height: frame.height, viewBox: `0 0 ${this.width} ${frame.height}`, role: "img", "aria-label": this.title });
    this.drawAxes(root, wide, labels);
    const inside = svg("g", near ? { "clip-path": `url(#inside-${this.id})` } : {});
    if (near) root.append(svg("clipPath", { id: "inside-" + this.id }, svg("rect",
      { x: this.left, width: this.width - this.left - frame.right, y: frame.top - 4, height: frame.height - frame.bottom - frame.top + 8 })));
    for (const one of this.series) this.drawSeries(inside, one);
    root.append(inside);
    this.overlay = svg("g", {});
    root.append(this.overlay);
    root.addEventListener("pointermove", (event) => this.point(event.clientX - root.getBoundingClientRect().left));
    root.addEventListener("pointerleave", () => this.leave());
    if (this.across) onDrag(root, (first, last) => this.look([first, last].map((x) => this.xAt(x))));
    root.addEventListener("dblclick", () => { if (look.near) this.look(null); });
    this.plot.replaceChildren(root);
    if (pointer.chart === this.id) this.point(pointer.x);
  }

  // Draws all charts from the first to the last of `range`; null: the whole.
  look(range) {
    look.near = range && range.map((x) => Math.min(Math.max(x, this.xRange[0]), this.xRange[1]) * (this.axis === "time" ? this.seconds.by : 1));
    render();
  }

  // The least and the largest value that is seen, and of those that lines lead to from there.
  heights(near) {
    return extent([].concat(...this.series.map((one) => {
      const xs = this.xOf(one.curve), all = one.curve.low ? [one.curve.low, one.curve.high] : [one.curve.y];
      if (one.noisy && look.smoothing > 0) all.push(smoothed(one.curve.y, look.smoothing));
      const seen = (i) => i >= 0 && i < xs.length && xs[i] >= near[0] && xs[i] <= near[1];
      return [].concat(...all.map((values) => near ? values.filter((_, i) => seen(i - 1) || seen(i) || seen(i + 1)) : values));
    })));
  }

  xAt(px) {
    return this.xRange[0] + (px - this.left) / (this.width - this.left - frame.right) * (this.xRange[1] - this.xRange[0]);
  }
  px(x) {
    return this.left + (x - this.xRange[0]) / (this.xRange[1] - this.xRange[0]) * (this.width - this.left - frame.right);
  }
  py(y) {
    const bottom = frame.height - frame.bottom;
    return bottom + (y - this.yRange[0]) / (this.yRange[1] - this.yRange[0]) * (frame.top - bottom);
  }

  drawAxes(root, wide, labels) {
    const bottom = frame.height - frame.bottom;
    wide.at.forEach((at, i) => root.append(
      svg("line", { class: "grid", x1: this.left, x2: this.width - frame.right, y1: this.py(at), y2: this.py(at) }),
      svg("text", { class: "y tick", x: this.left - 8, y: this.py(at) + 4, "text-anchor": "end" }, labels[i])));
    const time = this.axis === "time";
    const along = ticks(this.xRange[0], this.xRange[1], Math.max(Math.floor((this.width - this.left) / 90), 2), time ? 0 : 1);
    for (const at of along.at) {
      const text = tickText(at, along.step), half = 3.5 * text.length;
      const x = Math.min(this.px(at), this.width - half);
      root.append(svg("line", { class: "axis", x1: this.px(at), x2: this.px(at), y1: bottom, y2: bottom + 4 }),
        svg("text", { class: "x tick", x, y: bottom + 18, "text-anchor": "middle" }, text));
    }
    root.append(svg("line", { class: "axis", x1: this.left, x2: this.width - frame.right, y1: bottom, y2: bottom }),
      svg("text", { class: "x name", x: (this.left + this.width - frame.right) / 2, y: frame.height - 4, "text-anchor": "middle" },
        time ? this.seconds.name + " since the first step" : this.axis));
  }

  drawSeries(root, one) {
    const color = one.color, curve = one.curve;
    const place = (values) => values.map((value) => value === null ? null : this.py(value / this.by));
    const xs = this.xOf(curve).map((x) => x === null ? null : this.px(x)), ys = place(curve.y);
    const group = svg("g", { class: "series", "data-name": one.name, "data-points": curve.x.length });
    if (curve.low) group.append(svg("path", { class: "band", d: bandOf(xs, place(curve.low), place(curve.high)), style: `fill:${color}` }));
    const smooth = one.noisy && look.smoothing > 0;
    group.append(svg("path", { class: smooth ? "curve pale" : "curve", d: pathOf(xs, ys), style: `stroke:${color}`, "stroke-dasharray": one.dash || "none" }));
    if (smooth) group.append(svg("path", { class: "curve", d: pathOf(xs, place(smoothed(curve.y, look.smoothing))), style: `stroke:${color}`, "stroke-dasharray": one.dash || "none" }));
    const known = ys.filter((y) => y !== null).length;
    if (known === 1 || (one.marks && known <= 60)) {
      ys.forEach((y, i) => {
        if (y !== null && xs[i] !== null) group.append(svg("circle", { cx: xs[i].toFixed(1), cy: y.toFixed(1), r: 3.2, style: `fill:${color}` }));
      });
    }
    root.append(group);
  }

  // Shows the values at the pixel `x`.
  point(x) {
    if (x < this.left - 4 || x > this.width) return this.leave();
    Object.assign(pointer, { chart: this.id, x });
    const at = this.xAt(x);
    const rows = [];
    this.overlay.replaceChildren();
    let where = null;
    for (const one of this.series) {
      const xs = this.xOf(one.curve), i = nearest(xs, at), y = one.curve.y[i];
      if (y === null || xs[i] === null) continue;
      if (where === null || Math.abs(xs[i] - at) < Math.abs(where.x - at)) where = { x: xs[i], step: one.curve.x[i] };
      this.overlay.append(svg("circle", { cx: this.px(xs[i]), cy: this.py(y / this.by), r: 4, style: `fill:${one.color};stroke:var(--card);stroke-width:1.5` }));
      rows.push(html("p", {}, html("span", { class: "swatch", style: `background:${one.color}` }), one.name, html("b", {}, this.textOf(y))));
    }
    if (where === null) return this.leave();
    this.overlay.prepend(svg("line", { class: "cursor", x1: this.px(where.x), x2: this.px(where.x), y1: frame.top, y2: frame.height - frame.bottom }));
    const heading = this.axis === "time" ? `step ${fixed(where.step, 0)}, ${valueText(where.x)} ${this.seconds.name}` : `${this.axis} ${fixed(where.step, 0)}`;
    this.tip.replaceChildren(html("p", { class: "soft" }, heading), ...rows.slice(0, 12));
    this.tip.hidden = false;
    const left = this.px(where.x) + 28, width = this.tip.offsetWidth;
    this.tip.style.left = (left + width > this.width ? Math.max(left - width - 24, 0) : left) + "px";
    this.tip.style.top = "44px";
  }

  textOf(y) {
    if (this.percent) return percentText(y);
    return valueText(y / this.by) + (this.scale ? " " + this.scale.name : "");
  }

  leave() {
    if (pointer.chart === this.id) pointer.chart = null;
    this.tip.hidden = true;
    if (this.overlay) this.overlay.replaceChildren();
  }
}

// A line as it is in the picture.
function lineSwatch(key) {
  const line = svg("svg", { width: 22, height: 10, style: "width:22px;flex:none" },
    svg("line", { x1: 1, x2: 21, y1: 5, y2: 5, style: `stroke:${key.color};stroke-width:2`, "stroke-dasharray": key.dash || "none" }));
  if (key.marks) line.append(svg("circle", { cx: 11, cy: 5, r: 3, style: `fill:${key.color}` }));
  return line;
}

// ---- bars

// {id, title, unit, short, axis, wide, tall, keys: [{name, color}], rows: [{name, parts: [{name, value, color}]}], note}:
// a horizontal bar for each row, its parts one after the other.
class BarChart {
  constructor(options) {
    Object.assign(this, options);
    this.figure = html("figure", { class: "card" + (this.wide ? " wide" : ""), "data-chart": this.id },
      html("figcaption", {}, html("h3", {}, this.title, html("span", { class: "unit" }, " (" + this.unit + ")")), this.legend()));
    this.plot = html("div", {});
    this.tip = html("div", { class: "tip", hidden: "" });
    this.figure.append(this.plot, this.tip, saveButton(this.figure, this.title, this.id));
    if (this.note) this.figure.append(html("p", { class: "soft", style: "margin:2px 0 4px;font-size:13px" }, this.note));
  }

  legend() {
    const legend = html("div", { class: "legend" });
    for (const key of this.keys || []) legend.append(html("span", {}, html("span", { class: "swatch", style: `background:${key.color}` }), key.name));
    return legend;
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 240), line = this.tall ? Math.min(Math.max(220 / this.rows.length, 18), 56) : this.rows.length > 24 ? 16 : 26;
    const height = this.rows.length * line + 44;
    const totals = this.rows.map((row) => row.parts.reduce((sum, part) => sum + part.value, 0));
    const most = Math.max(...totals, 0) || 1, digits = most < 10 ? 2 : most < 1000 ? 1 : 0;  // the same for every bar
    const longest = Math.max(...this.rows.map((row) => row.name.length));
    const left = Math.min(14 + 7 * longest, width * 0.4), right = 64;
    const px = (value) => left + value / most * (width - left - right);
    const root = svg("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title });
    const along = ticks(0, most, Math.max(Math.floor((width - left - right) / 65), 2));
    for (const at of along.at) root.append(
      svg("line", { class: "grid", x1: px(at), x2: px(at), y1: 4, y2: height - 38 }),
      svg("text", { class: "x tick", x: px(at), y: height - 22, "text-anchor": "middle" }, tickText(at, along.step)));
    root.append(svg("text", { class: "x name", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, this.axis));
    const letters = Math.max(Math.floor((left - 14) / 7), 4);
    this.rows.forEach((row, i) => {
      const y = 4 + i * line, label = row.name.length > letters ? row.name.slice(0, letters - 1) + "…" : row.name;
      root.append(svg("text", { x: left - 8, y: y + line / 2 + 3, "text-anchor": "end" }, label, svg("title", {}, row.name)));
      this.drawRow(root, row, y, line, px, totals[i], fixed(totals[i], digits));
    });
    this.plot.replaceChildren(root);
  }

  drawRow(root, row, y, line, px, total, text) {
    let from = 0;
    const group = svg("g", { class: "bar-row", "data-name": row.name });
    for (const part of row.parts) {
      const bar = svg("rect", { x: px(from).toFixed(1), y: y + 2, width: Math.max(px(from + part.value) - px(from), 0).toFixed(1), height: line - 5, rx: 1.5,
        style: `fill:${part.color}`, "data-part": part.name, "data-value": part.value });
      const share = total > 0 ? ` · ${fixed(part.value / total * 100, 1)} %` : "";
      bar.addEventListener("pointermove", (event) => this.show(event, row.name, part, share));
      bar.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      group.append(bar);
      from += part.value;
    }
    group.append(svg("text", { class: "value", x: px(total) + 6, y: y + line / 2 + 3 }, text));
    root.append(group);
  }

  show(event, name, part, share) {
    this.tip.replaceChildren(html("p", { class: "soft" }, name),
      html("p", {}, html("span", { class: "swatch", style: `background:${part.color}` }), part.name, html("b", {}, valueText(part.value) + " " + this.short + share)));
    this.tip.hidden = false;
    const box = this.figure.getBoundingClientRect();
    this.tip.style.left = Math.max(Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 8), 0) + "px";
    this.tip.style.top = event.clientY - box.top + 14 + "px";
  }
}
