// What is said of a run, from what page_data.cc read: its status, tables of facts, notes. Pure; no value is trusted to
// be what training writes.
"use strict";

// A fact is {id, name, text, value, better}: the same thing has the same id in every run; runs are compared by `value`,
// of which more (1) or less (-1) is better, or neither (0).
const fact = (id, name, text, value, better = 0) => ({ id, name, text, value, better });

const objectOf = (value) => typeof value === "object" && value !== null ? value : {};
const numbers = (object) => Object.entries(objectOf(object)).filter(([, value]) => typeof value === "number");
const plainText = (value) => typeof value === "string" ? value : typeof value === "number" ? valueText(value)
  : typeof value === "boolean" ? (value ? "yes" : "no") : JSON.stringify(value);
const keyedText = (key, value) => typeof value === "number" ? valueInWords(key, value) : plainText(value);

function samplesWord(dataset) {
  if (["fashion-mnist", "mnist", "cifar10"].includes(dataset) || dataset.startsWith("synthetic:")) return "Images";
  return /^(text|tokens):/.test(dataset) ? "Sequences" : "Samples";
}

// How many tokens of a sample a network is given, 0 where it is given others; a language model's windows end with one
// more, which is only predicted.
function tokensOf(config) {
  const fields = new Map((Array.isArray(config.fields) ? config.fields : []).map((one) => [objectOf(one).name, objectOf(one)]));
  const { dtype, shape } = objectOf(fields.get("tokens"));
  if (!/^int/.test(dtype) || !Array.isArray(shape) || shape.length !== 1 || !(shape[0] > 1)) return 0;
  return isLanguage(config) ? shape[0] - 1 : shape[0];
}
const isLanguage = (config) => Array.isArray(config.fields) && config.fields.length > 0
  && config.fields.every((one) => ["tokens", "documents", "asked"].includes(objectOf(one).name));

// ---- config.json

function optionsOf(config) {
  return Object.entries(objectOf(config.options)).map(([name, option]) => ({ name, ...objectOf(option) }))
    .filter((option) => "value" in option && "source" in option)
    .map(({ name, value, source }) => ({ name, value: plainText(value), source: plainText(source) }));
}

// A fact for each of `names` that `object` has.
function named(object, names) {
  return names.filter(([key]) => ["string", "number", "boolean"].includes(typeof objectOf(object)[key]))
    .map(([key, name]) => fact(key, name, keyedText(key, object[key])));
}

const settingsOf = (config) => named(config, [["global_batch_size", "Batch of all workers"],
  ["batch_size_per_worker", "Batch of one worker"], ["accumulate", "Passes per step"], ["lr", "Learning rate"]]);

function machineOf(config) {
  const emulated = config.emulated === true ? [fact("emulated", "Emulated", "yes: times say nothing about a GPU")] : [];
  return [...named(config, [["device", "Device"]]), ...emulated, ...named(config.machine, [["host", "Host of rank 0"],
    ["processor", "Processor"], ["cores", "Cores"], ["memory_bytes", "Memory"], ["system", "System"]])];
}

// ---- summary.json and the curves

// With the formula that the operations were counted by.
function flopsText(value, summary) {
  const formula = summary.model_flops_formula;
  return operationsText(value) + "/s" + (typeof formula === "string" ? ` (${formula})` : "");
}

const known = [["loss", "Last training loss", valueText, -1], ["seconds", "Duration", secondsText, -1],
  ["seconds_to_first_step", "Time to first step", secondsText, -1], ["steps", "Steps", valueText, 0],
  ["epochs", "Epochs", valueText, 0], ["world_size", "Workers", valueText, 0],
  ["resumed_from_step", "Resumed from step", valueText, 0],
  ["tokens_per_second", "Tokens per second", valueText, 1], ["tokens", "Tokens seen", valueText, 0],
  ["model_flops_per_second", "Model FLOP/s", flopsText, 1], ["mfu", "Model FLOPs utilization (MFU)", percentText, 1],
  ["peak_allocated_bytes", "Peak memory of tensors", bytesText, -1],
  ["peak_resident_bytes", "Peak memory of the process", bytesText, -1],
  ["allocated_bytes", "Memory of tensors at the end", bytesText, 0],
  ["resident_bytes", "Memory of the process at the end", bytesText, 0]];
const knownKeys = new Set(known.map(([key]) => key));
const elsewhere = new Set(["status", "device", "emulated", "samples_per_second", "start", "model_flops_formula"]);

const accuracyFact = (value) => fact("test.accuracy", "Test accuracy", percentText(value), value, 1);
const testLossFact = (value) => fact("test.loss", "Test loss", valueText(value), value, -1);
const rateFact = (samples, value) => fact("samples_per_second", samples + " per second", valueText(value), value, 1);

function testFact([key, value]) {
  if (key === "accuracy") return accuracyFact(value);
  if (key === "loss") return testLossFact(value);
  const name = nameInWords(key);
  return fact("test." + key, "Test " + name.charAt(0).toLowerCase() + name.slice(1), valueInWords(key, value), value);
}

function summaryFacts(summary, samples) {
  const place = ([key]) => ["accuracy", "loss"].includes(key) ? key === "loss" : 2;
  const facts = numbers(summary.test).sort((a, b) => place(a) - place(b)).map(testFact);
  const all = new Map(numbers(summary)), resumed = all.get("resumed_from_step") > 0;
  if (all.has("samples_per_second")) facts.push(rateFact(samples, all.get("samples_per_second")));
  for (const [key, name, text, better] of known) {
    if (!all.has(key) || (key === "resumed_from_step" && !resumed)) continue;
    const value = all.get(key), after = key === "seconds" && resumed;
    facts.push(fact(key, after ? "Duration since the resume" : name, text(value, summary), value, better));
  }
  // What nobody here knows the name of.
  for (const [key, value] of Object.entries(summary)) {
    if (knownKeys.has(key) || elsewhere.has(key) || typeof value === "object") continue;
    facts.push(fact(key, nameInWords(key), keyedText(key, value), all.get(key)));
  }
  return facts;
}

// With what only the metrics know, or what a run without a summary has come to.
function resultsOf(run, samples) {
  const facts = summaryFacts(objectOf(run.summary), samples), { curves } = run;
  const add = (one) => { if (!facts.some((other) => other.id === one.id)) facts.push(one); };
  const last = (curve, make) => { if (curve && curve.last !== null) add(make(curve.last)); };
  const accuracy = (curves.evaluations.find((one) => one.id === "accuracy") || {}).curve;
  last(accuracy, accuracyFact);
  if (accuracy) {
    const { x, y } = accuracy.most;
    add(fact("best_accuracy", "Best test accuracy", `${percentText(y)}, step ${valueText(x)}`, y, 1));
  }
  last(curves.eval_loss, testLossFact);
  last(curves.rate, (value) => rateFact(samples, value));
  const rate = facts.find((one) => one.id === "samples_per_second"), tokens = tokensOf(objectOf(run.config));
  if (rate && tokens > 0 && !facts.some((one) => one.id === "tokens_per_second")) {
    const value = tokens * rate.value;
    facts.splice(facts.indexOf(rate), 0, fact("tokens_per_second", "Tokens per second", valueText(value), value, 1));
  }
  const epoch = run.seconds_per_epoch;
  if (epoch !== null) add(fact("seconds_per_epoch", "Seconds per epoch", secondsText(epoch), epoch, -1));
  last(curves.train_loss, (value) => fact("loss", "Last training loss", valueText(value), value, -1));
  add(fact("steps", "Steps", valueText(run.last_step), run.last_step));
  const span = run.last_time - run.first_time;
  if (run.first_time !== null) add(fact("span", "Time between first and last step", secondsText(span)));
  return facts;
}

// ---- in sentences

// A summary that is older than the last steps is an earlier start's.
function statusOf(run) {
  const { status, steps } = objectOf(run.summary);
  if (run.summary === null || status === "" || (steps >= 0 && run.last_step > steps)) {
    if (run.last_step === 0) return { kind: "empty", text: "No step recorded yet" };
    return { kind: "unfinished", text: "Not finished" };
  }
  if (typeof status !== "string" || status === "finished") return { kind: "finished", text: "Finished" };
  if (status === "stopped") return { kind: "stopped", text: "Stopped by a signal" };
  return { kind: "other", text: nameInWords(status) };
}

// What ended a run that did not finish, as its logs have it; null: they do not say.
function causeOf({ troubles }, { kind }) {
  const error = /(^|: )error: /, errors = troubles.filter((line) => error.test(line));
  if (kind === "finished" || kind === "stopped" || errors.length === 0) return null;
  const text = errors[errors.length - 1].replace(error, "$1");
  return kind === "other" ? text : "The last error in its logs: " + text;
}

function readingNotes({ lines, losses_not_finite: bad, ...run }) {
  const notes = [];
  if (lines.left_out > 0) {
    const are = lines.left_out === 1 ? "is" : "are";
    notes.push(`${valueText(lines.left_out)} of ${valueText(lines.read)} lines of metrics.jsonl could not be read and `
      + `${are} left out; the first is line ${lines.first_left_out}.`);
  }
  if (bad.count > 0) {
    notes.push(`The training loss was not a finite number in ${valueText(bad.count)} of the recorded steps, `
      + `first in step ${bad.first}.`);
  }
  return run.notes.concat(notes);
}

function subtitleOf(options, results, machine, starts) {
  const option = (name) => (options.find((one) => one.name === name) || { value: "" }).value;
  const text = (facts, id) => (facts.find((one) => one.id === id) || { text: "" }).text;
  const workers = text(results, "world_size"), several = workers === "1" ? " worker" : " workers";
  const what = [option("model"), option("dataset")].filter((one) => one).join(" on ");
  const where = workers ? [workers + several, text(machine, "device")] : starts.slice(-1);
  return [what, ...where].filter((one) => one).join(" · ");
}

function phasesOf(run) {
  if (run.phases !== null) return run.phases;
  const parts = numbers(objectOf(run.summary).phase_milliseconds_per_step);
  return { parts: parts.map(([name]) => name), measured: "mean of all steps of the last start",
    ranks: parts.length === 0 ? [] : [{ rank: 0, milliseconds: parts.map(([, value]) => Math.max(value, 0)) }] };
}

// The run as sections.js shows it.
function describedRun(run) {
  const config = objectOf(run.config), options = optionsOf(config);
  const samples = samplesWord((options.find((one) => one.name === "dataset") || { value: "" }).value);
  const results = resultsOf(run, samples), machine = machineOf(config), status = statusOf(run);
  const evaluations = run.curves.evaluations.map((one) => ({ ...one, name: nameInWords(one.id) }));
  return { ...run, curves: { ...run.curves, evaluations }, samples, tokens: tokensOf(config),
    loss_over: isLanguage(config) ? "tokens" : "samples", options, results, machine,
    settings: settingsOf(config), status, cause: causeOf(run, status), subtitle: subtitleOf(options, results, machine, run.starts),
    notes: readingNotes(run), phases: phasesOf(run) };
}
