// The sections of the page: what each picture and table is made of. They take the runs of facts.js and give elements.
"use strict";

const colors = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)"];
// Beyond the colours, dashes tell runs apart.
const dashes = ["none", "7 3", "2 3", "9 3 2 3"];
const runColor = (i) => colors[i % colors.length];
const runDash = (i) => dashes[Math.floor(i / colors.length) % dashes.length];

const partColors = { data: 0, "wait for batch": 0, "decode batch": 0, "copy to device": 5, forward: 1, backward: 2, communication: 3, optimizer: 4, checkpoint: 5, metrics: 6, other: 6 };
const partOrder = ["data", "wait for batch", "copy to device", "forward", "backward", "communication", "optimizer", "checkpoint", "metrics", "other"];
// Other programs name parts of their own.
function partColor(name, i) {
  return `var(--p${name in partColors ? partColors[name] : i % 7})`;
}

// ---- heads

function badge(run, live) {
  let { kind, text } = run.status;
  if (live && (kind === "unfinished" || kind === "empty")) {
    const quiet = run.last_time === null ? Infinity : Date.now() / 1000 - run.last_time;
    if (quiet < 30) kind = "training", text = "Training";
    else if (kind === "unfinished") text = `No new line for ${quiet < 120 ? Math.round(quiet) + " s" : Math.round(quiet / 60) + " min"}`;
    else kind = "training", text = "Waiting for the first step";
  }
  return html("span", { class: "badge " + kind }, text);
}

function headOfOne(run, live) {
  return [html("div", { class: "head" }, html("h1", {}, run.name), badge(run, live)),
    run.subtitle ? html("p", { class: "subtitle" }, run.subtitle) : null,
    html("p", { class: "path" }, run.path)];
}

function headOfSeveral(runs, live) {
  const list = html("ul", { class: "runs", style: "margin-top:14px;flex-direction:column" });
  runs.forEach((run, i) => list.append(html("li", { title: run.path },
    lineSwatch({ color: runColor(i), dash: runDash(i) }), html("b", {}, run.name), html("span", { class: "soft" }, run.subtitle), badge(run, live))));
  return [html("div", { class: "head" }, html("h1", {}, `${runs.length} runs`)), list];
}

function notesOf(runs) {
  const several = runs.length > 1;
  const causes = runs.filter((run) => run.cause !== null)
    .map((run) => html("p", { class: "note error" }, (several ? run.name + ": " : "") + run.cause));
  return causes.concat(...runs.map((run) => run.notes.map((note) => html("p", { class: "note" }, (several ? run.name + ": " : "") + note))));
}

function tiles(run) {
  const wanted = ["test.accuracy", "test.loss", "loss", "tokens_per_second", "mfu", "samples_per_second", "seconds_per_epoch", "seconds", "span", "peak_resident_bytes"];
  const found = wanted.map((id) => run.results.find((fact) => fact.id === id)).filter((fact) => fact);
  const shown = found.filter((fact) => fact.id !== "span" || !found.some((other) => other.id === "seconds"))
    .filter((fact) => fact.id !== "samples_per_second" || !found.some((other) => other.id === "tokens_per_second")).slice(0, 6);
  return html("div", { class: "tiles" }, ...shown.map((fact) => html("div", { class: "tile", "data-id": fact.id }, html("b", {}, fact.text), html("span", {}, fact.name))));
}

// ---- pictures

// One curve of each run; in a page of one run `color` is its own.
function seriesOf(runs, pick, options) {
  return runs.map((run, i) => ({ name: runs.length > 1 ? run.name : options.name, curve: pick(run), marks: options.marks, noisy: options.noisy,
    color: runs.length > 1 ? runColor(i) : options.color || colors[0], dash: runs.length > 1 ? runDash(i) : options.dash }));
}

const largest = (series) => Math.max(...series.filter((one) => one.curve).map((one) => (extent(one.curve.high || one.curve.y) || [0, 0])[1]), 0);

function lossChart(runs, axis) {
  const several = runs.length > 1;
  const training = seriesOf(runs, (run) => run.curves.train_loss, { name: "training", noisy: true });
  const evaluation = seriesOf(runs, (run) => run.curves.eval_loss, { name: "evaluation", color: colors[1], marks: true });
  if (several) evaluation.forEach((one) => { one.name += ", evaluation"; one.dash = "3 4"; });
  const any = (series) => series.some((one) => one.curve);
  const keys = [any(training) ? { name: "training", color: several ? "var(--soft)" : colors[0] } : null,
    any(evaluation) ? { name: "evaluation", color: several ? "var(--soft)" : colors[1], dash: several ? "3 4" : "none", marks: true } : null];
  const over = new Set(runs.map((run) => run.loss_over)), unit = over.size === 1 ? `mean over the ${[...over][0]}` : "";
  return new LineChart({ id: "loss", title: "Loss", unit, axis, series: training.concat(evaluation), keys: keys.filter((key) => key) });
}

function evaluationCharts(runs, axis) {
  const names = new Map();
  for (const run of runs) for (const one of run.curves.evaluations) names.set(one.id, one.name);
  return [...names].map(([id, name]) => {
    const pick = (run) => (run.curves.evaluations.find((one) => one.id === id) || {}).curve;
    const series = seriesOf(runs, pick, { name: "evaluation", color: colors[1], marks: true });
    series.forEach((one) => { one.marks = true; });
    const share = id === "accuracy";
    return new LineChart({ id, title: name, unit: "", axis, series, percent: share, scale: share ? { by: 0.01, name: "%" } : undefined, bounds: share ? [0, 100] : undefined });
  });
}

function rateChart(runs, axis) {
  const tokens = new Set(runs.map((run) => run.tokens)), [each] = tokens;
  if (tokens.size === 1 && each > 0) {
    return new LineChart({ id: "rate", title: "Speed of all workers", axis, zero: true, scale: { by: 1 / each, name: "tokens/s" },
      series: seriesOf(runs, (run) => run.curves.rate, { name: "tokens per second", color: colors[2], noisy: true }) });
  }
  const words = new Set(runs.map((run) => run.samples));
  const word = words.size === 1 ? [...words][0] : "Samples";
  return new LineChart({ id: "rate", title: word + " per second", unit: "of all workers", axis, zero: true,
    series: seriesOf(runs, (run) => run.curves.rate, { name: word.toLowerCase() + " per second", color: colors[2], noisy: true }) });
}

function memoryChart(runs, axis) {
  const several = runs.length > 1;
  const resident = seriesOf(runs, (run) => run.curves.resident, { name: "process", color: colors[3] });
  const tensors = seriesOf(runs, (run) => run.curves.allocated, { name: "tensors", color: colors[0], dash: "7 3" });
  if (several) tensors.forEach((one) => { one.name += ", tensors"; one.dash = "3 4"; });
  const series = resident.concat(tensors);
  const keys = [{ name: "process", color: several ? "var(--soft)" : colors[3] }, { name: "tensors", color: several ? "var(--soft)" : colors[0], dash: several ? "3 4" : "7 3" }];
  return new LineChart({ id: "memory", title: "Memory of rank 0", axis, zero: true, series, keys, scale: bytesScale(largest(series)) });
}

function learningRateChart(runs, axis) {
  const series = seriesOf(runs, (run) => run.curves.learning_rate, { name: "learning rate", color: colors[6] });
  const varies = series.some((one) => { const range = one.curve && extent(one.curve.y); return range && range[0] !== range[1]; });
  return varies ? new LineChart({ id: "learning_rate", title: "Learning rate", unit: "", axis, zero: true, series }) : null;
}

// Ranks in the order in which they wait least: of many, the slowest and the fastest say what there is to know.
function shownRanks(ranks) {
  const most = 48;
  return ranks.length <= most ? ranks : ranks.slice(0, most);
}

// `wide`: over both columns.
function phasesChart(runs, wide) {
  const several = runs.length > 1, rows = [], parts = [], notes = new Set();
  const measured = runs.filter((run) => run.phases.ranks.length > 0), alike = new Set(measured.map((run) => run.phases.measured)).size === 1;
  for (const run of runs) for (const part of run.phases.parts) if (!parts.includes(part)) parts.push(part);
  for (const run of measured) notes.add((alike ? "" : run.name + ": ") + run.phases.measured);
  const place = (part) => partOrder.includes(part) ? partOrder.indexOf(part) : partOrder.length - 1.5;
  parts.sort((a, b) => place(a) - place(b));
  const largestPart = (part) => Math.max(...runs.map((run) => Math.max(0, ...run.phases.ranks.map((rank) => rank.milliseconds[run.phases.parts.indexOf(part)] || 0))));
  const total = Math.max(...parts.map(largestPart), 0);
  for (const run of runs) {
    for (const rank of shownRanks(run.phases.ranks)) {
      rows.push({ name: (several ? run.name + ", " : "") + "rank " + rank.rank, parts: parts.map((part, i) => ({ name: capital(part), color: partColor(part, i),
        value: rank.milliseconds[run.phases.parts.indexOf(part)] || 0 })) });
    }
    const left = run.phases.ranks.length - shownRanks(run.phases.ranks).length;
    if (left > 0) notes.add(`${several ? run.name + ": " : ""}${left} more ranks are left out`);
  }
  if (rows.length === 0) return null;
  const seen = parts.filter((part) => largestPart(part) > total * 1e-3);
  return new BarChart({ id: "phases", title: "Time of a step's parts by rank", unit: "ms", short: "ms", axis: "milliseconds a step", wide, tall: !wide, rows,
    keys: seen.map((part) => ({ name: capital(part), color: partColor(part, parts.indexOf(part)) })), note: (alike ? capital([...notes].join("; ")) : [...notes].join("; ")) + "." });
}

function epochsChart(runs) {
  const curves = runs.map((run) => {
    const known = run.epochs.filter((row) => row.seconds !== null && row.whole);
    return known.length === 0 ? null : { x: known.map((row) => row.epoch), t: known.map(() => null), y: known.map((row) => row.seconds) };
  });
  if (curves.every((curve) => curve === null)) return null;
  const rows = runs[0].epochs.filter((row) => row.seconds !== null);
  if (runs.length === 1 && rows.length <= 12) {
    return new BarChart({ id: "epochs", title: "Seconds per epoch", unit: "s", short: "s", axis: "seconds of training", tall: true, rows: rows.map((row) =>
      ({ name: `epoch ${row.epoch}${row.whole ? "" : " (part)"}`, parts: [{ name: "Training", value: row.seconds, color: row.whole ? colors[0] : colors[7] }] })) });
  }
  const series = seriesOf(runs, (run) => curves[runs.indexOf(run)], { name: "seconds", marks: true });
  series.forEach((one) => { one.marks = true; });
  return new LineChart({ id: "epochs", title: "Seconds per epoch", unit: "of training", axis: "epoch", zero: true, series });
}

function chartsOf(runs, axis) {
  const charts = [lossChart(runs, axis), ...evaluationCharts(runs, axis), rateChart(runs, axis), memoryChart(runs, axis), learningRateChart(runs, axis)];
  const drawn = charts.filter((chart) => chart && chart.series.length > 0);
  // One range for all, so that what is above each other happened at the same time.
  const curves = [].concat(...drawn.map((chart) => chart.series.map((one) => axis === "time" ? one.curve.t : one.curve.x)));
  const across = extent([].concat(...curves));
  for (const chart of drawn) chart.across = across || undefined;
  const epochs = epochsChart(runs);
  if (epochs) drawn.push(epochs);
  // A few ranks fill the place that an odd number of pictures leaves.
  const rows = runs.reduce((sum, run) => sum + run.phases.ranks.length, 0);
  const phases = phasesChart(runs, drawn.length % 2 === 0 || rows > 8);
  return phases ? drawn.concat(phases) : drawn;
}

// ---- what the network sees and predicts

// Picture i of a sheet: a window on the one image, which stands in the page once.
function tile(sheet, i, id, ...words) {
  const [width, height] = sheet.size, [across, down] = sheet.cell;
  const window = svg("svg", { viewBox: `${i % sheet.columns * across} ${Math.floor(i / sheet.columns) * down} ${width} ${height}`, "aria-hidden": "true" },
    svg("use", { href: "#" + id }));
  return html("div", { class: "shot" + (width < 64 ? " coarse" : "") }, html("div", {}, window), ...words);
}

function sheetImage(sheet, id, count) {
  const [across, down] = sheet.cell;
  const image = svg("image", { id, href: sheet.image, width: sheet.columns * across, height: Math.ceil(count / sheet.columns) * down });
  return svg("svg", { width: 0, height: 0, style: "position:absolute;width:0", "aria-hidden": "true" }, image);
}

// A sample's file, or its index in the data set where many share one; a long path by its end.
const sampleName = (one) => one.file === undefined ? `sample ${one.sample}` : one.file;
function sampleText(one) {
  const name = one.file === undefined ? String(one.sample) : one.file.split("/").pop();
  return html("span", { class: "soft", title: sampleName(one) }, name);
}

function batchCard({ batch }) {
  if (!batch) return null;
  const shots = batch.samples.map((one, i) => tile(batch.sheet, i, "batch-sheet", html("span", { title: sampleName(one) }, one.label === undefined ? "" : one.label)));
  return html("section", { class: "card table wide", "data-table": "First training pictures" }, html("h3", {}, "First training pictures"),
    sheetImage(batch.sheet, "batch-sheet", shots.length), html("div", { class: "shots" }, ...shots),
    html("p", { class: "soft small" }, "Rank 0, first step: the pictures as the network sees them, augmented, with their labels."));
}

function mistakesCard({ evaluation }) {
  if (!evaluation || evaluation.mistakes.length === 0) return null;
  const { sheet, mistakes } = evaluation, title = "Worst mistakes";
  const note = html("p", { class: "soft small" }, `Evaluation after epoch ${evaluation.epoch + 1}: the samples whose labels the network finds least probable. `
    + (mistakes[0].file === undefined ? "The number is the sample's index in the data set. " : "") + "Look for wrong labels among them.");
  if (!sheet) {
    const rows = mistakes.map((one) => html("tr", {}, html("td", {}, one.label), html("td", {}, one.predicted),
      html("td", { class: "number" }, percentText(one.probability)), html("td", { class: "number" }, one.file === undefined ? String(one.sample) : one.file)));
    const head = html("tr", {}, html("th", {}, "Label"), html("th", {}, "Predicted"), html("th", { class: "number" }, "Probability of the label"), html("th", { class: "number" }, "Sample"));
    const made = table(title, head, rows);
    made.append(note);
    return made;
  }
  const shots = mistakes.map((one, i) => tile(sheet, i, "mistakes-sheet", html("span", { title: one.predicted }, one.predicted),
    html("span", { class: "soft", title: one.label }, "label " + one.label), html("span", { class: "soft" }, percentText(one.probability)), sampleText(one)));
  return html("section", { class: "card table wide", "data-table": title }, html("h3", {}, title), sheetImage(sheet, "mistakes-sheet", shots.length),
    html("div", { class: "shots" }, ...shots), note);
}

function confusionCard({ evaluation }) {
  if (!evaluation || (!evaluation.matrix && evaluation.confused.length === 0)) return null;
  const samples = `Evaluation after epoch ${evaluation.epoch + 1}, ${valueText(evaluation.samples)} samples.`;
  if (!evaluation.matrix) {
    const rows = evaluation.confused.map((one) => html("tr", {}, html("td", {}, one.label), html("td", {}, one.predicted), html("td", { class: "number" }, `${one.count} of ${one.of}`)));
    return table("Confused most often", html("tr", {}, html("th", {}, "Label"), html("th", {}, "Predicted"), html("th", { class: "number" }, "Samples")), rows, samples);
  }
  const names = evaluation.classes, sums = evaluation.matrix.map((row) => row.reduce((sum, count) => sum + count, 0));
  const cell = (label, predicted) => {
    const count = evaluation.matrix[label][predicted], share = sums[label] === 0 ? 0 : count / sums[label];
    const color = `color-mix(in srgb, var(${label === predicted ? "--c2" : "--c1"}) ${(share * 100).toFixed(1)}%, transparent)`;
    return html("td", { class: share > 0.6 ? "strong" : "", style: `background:${color}`, title: `${count} of ${sums[label]} of ${names[label]} predicted as ${names[predicted]}` }, count === 0 ? "" : String(count));
  };
  const head = html("tr", {}, html("th", {}, "Label \\ predicted"), ...names.map((name) => html("th", { class: "turned" }, html("span", { title: name }, name))), html("th", { class: "number" }, "Right"));
  const rows = names.map((name, label) => html("tr", {}, html("th", { title: name }, name), ...names.map((_, predicted) => cell(label, predicted)),
    html("td", { class: "number" }, sums[label] === 0 ? "–" : percentText(evaluation.matrix[label][label] / sums[label]))));
  return html("section", { class: "card table wide", "data-table": "Confusion" }, html("h3", {}, "Confusion matrix"),
    html("div", { class: "scroll" }, html("table", { class: "confusion" }, html("thead", {}, head), html("tbody", {}, ...rows))), html("p", { class: "soft small" }, samples + " Colours show shares of a row."));
}

const picturesOf = (run) => [batchCard(run), confusionCard(run), mistakesCard(run)].filter((one) => one);

// ---- tables

function table(title, head, rows, note) {
  if (rows.length === 0) return null;
  const body = html("tbody", {}, ...rows);
  const content = html("table", {}, head ? html("thead", {}, head) : null, body);
  return html("section", { class: "card table", "data-table": title }, html("h3", {}, title), rows.length > 40 ? html("div", { class: "scroll" }, content) : content,
    note ? html("p", { class: "soft", style: "font-size:13px;margin:4px 0" }, note) : null);
}

const factRow = (fact) => html("tr", {}, html("th", {}, fact.name), html("td", { class: "number" }, fact.text));

// As the first lesson prints them: epoch, seconds, loss, accuracy and a bar.
function epochTable(run) {
  const hasSeconds = run.epochs.some((row) => row.seconds !== null), hasLoss = run.epochs.some((row) => row.loss !== null);
  const metrics = [...new Set([].concat(...run.epochs.map((row) => Object.keys(row.metrics))))].slice(0, 4);
  const name = (id) => (run.curves.evaluations.find((one) => one.id === id) || { name: id }).name;
  const cell = (text) => html("td", { class: "number" }, text);
  const show = (id, value) => value === undefined || value === null ? "–" : id === "accuracy" ? percentText(value) : valueText(value);
  const rows = run.epochs.map((row) => html("tr", {}, cell(String(row.epoch)),
    hasSeconds ? cell(row.seconds === null ? "–" : fixed(row.seconds, 2) + (row.whole ? "" : " (part)")) : null,
    hasLoss ? cell(row.loss === null ? "–" : fixed(row.loss, 4)) : null,
    ...metrics.map((id) => cell(show(id, row.metrics[id]))),
    metrics.includes("accuracy") ? html("td", { style: "width:34%" }, meter(row.metrics.accuracy)) : null));
  const head = html("tr", {}, ...["Epoch", hasSeconds ? "Seconds" : null, hasLoss ? "Test loss" : null, ...metrics.map(name), metrics.includes("accuracy") ? "" : null]
    .filter((text) => text !== null).map((text) => html("th", { class: "number" }, text)));
  return table("Epochs", head, rows, run.epochs_left_out > 0 ? `The ${fixed(run.epochs_left_out, 0)} epochs before are left out.` : "");
}

function meter(share) {
  const width = typeof share === "number" ? Math.min(Math.max(share, 0), 1) * 100 : 0;
  return html("div", { style: `height:10px;margin-top:6px;border-radius:3px;background:var(--c1);width:${width.toFixed(1)}%` });
}

function optionRows(run) {
  return run.options.filter((option) => option.source !== "default").map((option) =>
    html("tr", {}, html("th", {}, html("code", {}, "--" + option.name)), html("td", {}, option.value), html("td", { class: "soft" }, option.source)));
}

function linesTable(title, lines, note) {
  if (lines.length === 0) return null;
  return html("section", { class: "card table", "data-table": title }, html("h3", {}, title), note ? html("p", { style: "margin:0" }, note) : null,
    html("ul", { class: "lines" }, ...lines.map((line) => html("li", {}, line))));
}

function tablesOfOne(run) {
  const restarts = run.starts.length - 1;
  const starts = restarts > 0 ? `Started ${run.starts.length} times: restarted or resumed ${restarts === 1 ? "once" : restarts + " times"}.` : "";
  return [epochTable(run),
    table("Results", null, run.results.map(factRow)),
    table("Options that are not the defaults", null, optionRows(run)),
    table("Settings", null, run.settings.map(factRow)),
    table("Machine", null, run.machine.map(factRow)),
    linesTable("What the network says", (run.shown || []).map((one) => `step ${one.step}: ${one.text}`), "Continuations of held-out texts, behind the arrows; newest last."),
    linesTable("Starts", run.starts.slice(-20), starts),
    linesTable("Warnings and errors", run.troubles, "From the logs of the first ranks, newest last.")];
}

// ---- several runs

function headRow(runs) {
  return html("tr", {}, html("th", {}), ...runs.map((run, i) => html("th", { class: "number" }, html("span", { class: "swatch", style: `background:${runColor(i)};margin-right:6px` }), run.name)));
}

function comparedResults(runs) {
  const ids = new Map();
  for (const run of runs) for (const fact of run.results.concat(run.settings, run.machine)) if (!ids.has(fact.id)) ids.set(fact.id, fact);
  return [...ids.values()].map(({ id, name, better }) => {
    const facts = runs.map((run) => run.results.concat(run.settings, run.machine).find((fact) => fact.id === id));
    const values = facts.map((fact) => fact && typeof fact.value === "number" ? fact.value * (better || 0) : NaN).filter((value) => !isNaN(value));
    const best = better && values.length > 1 && new Set(values).size > 1 ? Math.max(...values) : NaN;
    const cells = facts.map((fact) => html("td", { class: "number" + (fact && fact.value * better === best ? " best" : "") }, fact ? fact.text : "–"));
    const same = new Set(facts.map((fact) => fact ? fact.text : "")).size === 1;
    return { same, row: same ? factRow(facts[0]) : html("tr", {}, html("th", {}, name), ...cells) };
  });
}

function comparedOptions(runs) {
  const own = new Set(["run-dir", "trace", "help", "print-config", "config"]);
  const names = [...new Set([].concat(...runs.map((run) => run.options.map((option) => option.name))))].filter((name) => !own.has(name)).sort();
  return names.map((name) => {
    const options = runs.map((run) => run.options.find((option) => option.name === name));
    const texts = options.map((option) => option ? option.value : "–");
    const cells = options.map((option, i) => html("td", { class: "number" + (option && option.source === "default" ? " soft" : "") }, texts[i]));
    const same = new Set(texts).size === 1;
    return { same, default: options.every((option) => !option || option.source === "default"),
      row: html("tr", {}, html("th", {}, html("code", {}, "--" + name)), ...(same ? [html("td", {}, texts[0])] : cells)) };
  });
}

function tablesOfSeveral(runs) {
  const results = comparedResults(runs), options = comparedOptions(runs);
  const rows = (all, same) => all.filter((one) => one.same === same).map((one) => one.row);
  const different = rows(options, false);
  const same = options.filter((one) => one.same && !one.default).map((one) => one.row);
  return [table("Results", headRow(runs), rows(results, false), "★ best of these runs"),
    different.length > 0 ? table("Options that differ", headRow(runs), different, "Grey: the default.")
      : html("section", { class: "card table", "data-table": "Options that differ" }, html("h3", {}, "Options that differ"), html("p", {}, "None: these runs had the same options.")),
    html("details", {}, html("summary", {}, "What is the same"), html("div", { class: "columns" },
      table("Same results", null, rows(results, true)), table("Same options, not the defaults", null, same)))];
}
