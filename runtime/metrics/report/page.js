// Puts the page together, draws it again when the window changes, and follows a live run.
"use strict";

const page = { data: null, axis: "step", charts: [], lost: false, refreshes: 0 };

function take({ live, runs }) {
  page.data = { live, runs: runs.map(describedRun) };
}

// What goes wrong in here is shown, not hidden in a console that nobody opens.
function fail(message) {
  let note = document.getElementById("script-error");
  if (!note) document.body.prepend(note = html("p", { class: "note error", id: "script-error" }));
  note.textContent = "This page could not be drawn: " + message + ". The numbers are in metrics.jsonl and summary.json.";
}
addEventListener("error", (event) => fail(event.message));
addEventListener("unhandledrejection", (event) => fail(String(event.reason)));

function switches() {
  const noisy = page.charts.some((chart) => chart.series && chart.series.some((one) => one.noisy));
  const whole = html("button", { type: "button", class: "whole" }, "Show the whole");
  whole.addEventListener("click", () => { look.near = null; render(); });
  return html("div", { class: "switches" }, look.near ? whole : null,
    noisy ? choiceOf("Smoothing", "Smoothing of noisy curves", look.smoothing, [[0, "Off"], [0.6, "Some"], [0.9, "Much"]], (weight) => { look.smoothing = weight; render(); }) : null,
    choiceOf("Along", "Horizontal axis", page.axis, [["step", "Steps"], ["time", "Time"]], (axis) => { page.axis = axis; look.near = null; render(); }));
}

function liveLine() {
  if (!page.data.live) return null;
  return html("span", { class: page.lost ? "badge lost" : "soft", id: "live" },
    page.lost ? "Lost the connection to dtrain report; trying again" : "Follows the run");
}

function render() {
  const { runs, live } = page.data, several = runs.length > 1;
  page.charts = chartsOf(runs, page.axis);
  const empty = page.charts.length === 0, pictures = several ? [] : picturesOf(runs[0]);
  const elements = [...(several ? headOfSeveral(runs, live) : headOfOne(runs[0], live)), ...notesOf(runs),
    several ? null : tiles(runs[0]),
    html("div", { class: "bar" }, liveLine(), empty ? null : switches()),
    empty ? html("p", { class: "note" }, live ? "No step has been recorded yet. The pictures appear with the first one."
      : "No step was recorded: there is nothing to draw.") : html("div", { class: "charts" }, ...page.charts.map((chart) => chart.figure)),
    ...pictures.length > 0 ? [html("h2", {}, "Samples"), html("div", { class: "samples" }, ...pictures)] : [],
    html("h2", {}, "Numbers"),
    several ? html("div", { style: "display:grid;gap:16px" }, ...tablesOfSeveral(runs).filter((one) => one))
      : html("div", { class: "columns" }, ...tablesOfOne(runs[0]).filter((one) => one))];
  const before = document.querySelector("details"), open = before !== null && before.open;
  document.getElementById("page").replaceChildren(...elements.filter((one) => one));
  for (const details of document.querySelectorAll("details")) details.open = open;
  for (const chart of page.charts) chart.draw();
  page.badges = live ? runs.map((run) => badge(run, true).className).join() : "";
  document.body.dataset.step = Math.max(...runs.map((run) => run.last_step));
  document.body.dataset.refreshes = page.refreshes;
}

// ---- a live run

const badgesNow = () => page.data.runs.map((run) => badge(run, true).className).join();

const between = 1000;
let version = "";

async function refresh() {
  let lost = false;
  try {
    const answer = await fetch("data.json" + location.search + "&after=" + encodeURIComponent(version), { cache: "no-store" });
    if (answer.status === 200) {
      version = answer.headers.get("etag") || "";
      take(await answer.json());
      page.refreshes += 1;
      page.lost = false;
      render();
    } else if (answer.status !== 204) {
      lost = true;
    } else if (badgesNow() !== page.badges) {
      render();  // time passes: what was training may stand still
    }
  } catch (error) {
    lost = true;
  }
  if (lost !== page.lost) {
    page.lost = lost;
    render();
  }
  setTimeout(refresh, between);
}

take(JSON.parse(document.getElementById("data").textContent));
render();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const chart of page.charts) chart.draw();
});
if (page.data.live) setTimeout(refresh, between);
