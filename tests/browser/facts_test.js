// What the report's page says of a run (words.js, facts.js), checked in a browser: a difference is an error of the
// script, which fails the page.
"use strict";

function equal(what, got, expected) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: expected ${b}, got ${a}`);
}

// A run of which nothing is known, but for `more`.
const runWith = (more) => ({ name: "run", path: "/run", config: null, summary: null, starts: [], troubles: [],
  notes: [], last_step: 0, first_time: null,
  last_time: null, seconds_per_epoch: null, lines: { read: 0, left_out: 0, first_left_out: 0 },
  losses_not_finite: { count: 0, first: 0 },
  curves: { train_loss: null, eval_loss: null, rate: null, evaluations: [] }, epochs: [], phases: null, ...more });
const textsOf = (facts) => Object.fromEntries(facts.map((one) => [one.name, one.text]));

for (const [value, text] of [[8515.9, "8,516"], [0.62969, "0.6297"], [-1234567, "-1,234,567"], [100, "100"], [0, "0"],
  [3e-5, "3e-05"], [1.23456e-7, "1.235e-07"],
  [1e16, "1e+16"], [999.96, "1000"]]) equal("valueText", valueText(value), text);
for (const [bytes, text] of [[86630400, "82.6 MiB"], [1032792, "1.0 MiB"], [999, "999 B"], [5e15,
  "4,547.5 TiB"]]) equal("bytesText", bytesText(bytes), text);
for (const [seconds, text] of [[0.1677, "168 ms"], [0, "0 ms"], [14.95, "14.9 s"], [3.5, "3.50 s"], [123,
  "2 min 03 s"], [3900, "1 h 05 min"],
  [1e12, "1,000,000,000,000 s"]]) equal("secondsText", secondsText(seconds), text);
equal("percentText", percentText(0.7533), "75.33 %");
equal("nameInWords", nameInWords("own_queue_bytes"), "Own queue");
equal("valueInWords", [valueInWords("own_queue_bytes", 2048), valueInWords("wait_ms", 2.5), valueInWords("_ms", 7)],
  ["2.0 KiB", "2.5 ms", "7"]);

// No raw key is left, and what nobody knows the name of is shown as well.
const summary = { status: "finished", steps: 470, loss: 0.4731, samples_per_second: 8515.9,
  seconds_to_first_step: 0.1677, peak_resident_bytes: 86630400,
  resumed_from_step: 0, own_thing: 3, own_word: "yes", start: 1, test: { samples: 10000, loss: 0.5, accuracy: 0.7533,
  top_5: 0.9, note: "x" },
  phase_milliseconds_per_step: { forward: 8.1, other: -1, odd: "x" } };
const run = describedRun(runWith({ summary, last_step: 470, config: { options: { dataset: { value: "cifar10",
  source: "command line" }, odd: 7,
  model: { value: "lenet", source: "default" } }, lr: 0.1, emulated: true, accumulate: 2, machine: { cores: 2,
  memory_bytes: 8 * 2 ** 30, host: null } } }));
equal("results", textsOf(run.results), { "Test accuracy": "75.33 %", "Test loss": "0.5", "Test samples": "10,000",
  "Test top 5": "0.9",
  "Images per second": "8,516", "Last training loss": "0.4731", "Time to first step": "168 ms", Steps: "470",
  "Peak memory of the process": "82.6 MiB",
  "Own thing": "3", "Own word": "yes" });
equal("settings", textsOf(run.settings), { "Passes per step": "2", "Learning rate": "0.1" });
equal("machine", textsOf(run.machine), { Emulated: "yes: times say nothing about a GPU", Cores: "2",
  Memory: "8.0 GiB" });
equal("options", run.options, [{ name: "dataset", value: "cifar10", source: "command line" }, { name: "model",
  value: "lenet", source: "default" }]);
equal("subtitle", run.subtitle, "lenet on cifar10");
equal("phases", run.phases.ranks, [{ rank: 0, milliseconds: [8.1, 0] }]);
equal("status", run.status, { kind: "finished", text: "Finished" });
equal("subtitle with workers", describedRun(runWith({ summary: { world_size: 1 },
  config: { device: "cpu" } })).subtitle, "1 worker · cpu");
equal("subtitle of the log", describedRun(runWith({ starts: ["2 workers, cpu", "1 worker, cpu"] })).subtitle,
  "1 worker, cpu");

// A language model's speed is in tokens, of which its windows have one more; a classifier of texts is given all of them.
const windowsOf = (names, length) => names.map((name) => ({ name, dtype: "int32", shape: name === "label" ? [] : [length] }));
const speaking = (fields) => describedRun(runWith({ summary: { samples_per_second: 10 }, config: { fields } }));
const spoken = speaking(windowsOf(["tokens", "documents", "asked"], 65)), told = speaking(windowsOf(["tokens", "label"], 64));
equal("tokens of a language model", textsOf(spoken.results)["Tokens per second"], "640");
equal("what its loss is a mean over", [spoken.loss_over, told.loss_over, run.loss_over], ["tokens", "samples", "samples"]);
const summed = describedRun(runWith({ summary: { samples_per_second: 10, tokens_per_second: 630, tokens: 1e6, model_flops_per_second: 5.38e14,
  model_flops_formula: "6 N + 12 L H Q T a token", mfu: 0.5439 }, config: { fields: windowsOf(["tokens"], 65) } }));
equal("a language model's speed as its summary has it", ["Tokens per second", "Tokens seen", "Model FLOP/s", "Model FLOPs utilization (MFU)"]
  .map((name) => textsOf(summed.results)[name]), ["630", "1,000,000", "538 TFLOP/s (6 N + 12 L H Q T a token)", "54.39 %"]);
equal("tokens of a classifier", textsOf(told.results)["Tokens per second"], "640");
equal("tokens of fields that are none", [{ fields: 7 }, { fields: [{ name: "tokens" }] }, { fields: [null] }].map(tokensOf), [0, 0, 0]);

// What a run without a summary has come to, from the ends of its curves.
const curve = (last, most) => ({ x: [], t: [], y: [], last, most });
const unfinished = describedRun(runWith({ last_step: 1200, first_time: 100, last_time: 223, seconds_per_epoch: 7.25,
  curves: { train_loss: curve(0.25), eval_loss: curve(0.5), rate: curve(1000), evaluations: [{ id: "accuracy",
  curve: curve(0.8, { x: 1100, y: 0.9 }) }] } }));
equal("results of an unfinished run", textsOf(unfinished.results), { "Test accuracy": "80.00 %",
  "Best test accuracy": "90.00 %, step 1,100", "Test loss": "0.5",
  "Samples per second": "1,000", "Seconds per epoch": "7.25 s", "Last training loss": "0.25", Steps: "1,200",
  "Time between first and last step": "2 min 03 s" });
equal("resumed", textsOf(summaryFacts({ seconds: 14.95, resumed_from_step: 200 }, "Samples")),
  { "Duration since the resume": "14.9 s", "Resumed from step": "200" });

// A summary of an earlier start is not the end.
const statusWith = (text, steps, lastStep) => describedRun(runWith({ summary: { status: text, steps },
  last_step: lastStep })).status.kind;
equal("status", [statusWith("stopped", 100, 300), statusWith("stopped", 300, 300), statusWith("lost_nodes", 3, 3),
  statusWith(7, 3, 3), statusWith("", 3, 3)],
  ["unfinished", "stopped", "other", "finished", "unfinished"]);
equal("status of nothing", describedRun(runWith({})).status.kind, "empty");
const causeWith = (status, ...troubles) => describedRun(runWith({ summary: { status, steps: 3 }, last_step: 3, troubles })).cause;
equal("cause", [causeWith("diverged", "error: old", "rank 1: error: the loss is nan", "rank 0: warning: slow"),
  causeWith("", "error: no space left"), causeWith("finished", "error: old"), causeWith("diverged", "warning: slow")],
  ["rank 1: the loss is nan", "The last error in its logs: no space left", null, null]);
equal("notes", describedRun(runWith({ notes: ["one"], lines: { read: 1302, left_out: 1, first_left_out: 302 },
  losses_not_finite: { count: 2, first: 7 } })).notes,
  ["one", "1 of 1,302 lines of metrics.jsonl could not be read and is left out; the first is line 302.",
    "The training loss was not a finite number in 2 of the recorded steps, first in step 7."]);

// Files may say anything.
for (const odd of [{ options: 7, machine: "x", lr: {} }, { options: { a: null, b: { value: {} } } },
  JSON.parse('{"__proto__":{"a":1},"constructor":7}')]) {
  const described = describedRun(runWith({ config: odd, summary: odd }));
  equal("odd options", described.options, []);
}
if (typeof document !== "undefined") document.body.dataset.facts = "as expected";
