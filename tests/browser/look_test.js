// Put at the end of a run's page by report.sh: smooths, looks nearer and saves a picture as a reader does with the mouse.
// <body data-look> is "as expected", or has what is not.
"use strict";

(() => {
  const complaints = [], expect = (ok, what) => { if (!ok) complaints.push(what); };
  const chart = (id) => document.querySelector(`[data-chart="${id}"]`), picture = (id) => chart(id).querySelector("svg[role=img]");
  const press = (text) => [...document.querySelectorAll("button")].find((button) => button.textContent === text).click();

  expect(JSON.stringify(smoothed([1, null, 3], 0.5)) === "[1,null," + 7 / 3 + "]", "smoothed values " + JSON.stringify(smoothed([1, null, 3], 0.5)));
  const curves = () => [...picture("loss").querySelectorAll('[data-name="training"] .curve')].map((path) => path.getAttribute("d"));
  const [raw] = curves();
  expect(curves().length === 1, "a curve, not smoothed at first");
  press("Much");
  expect(curves().length === 2 && curves()[0] === raw && curves()[1] !== raw, "the curve and a smoothed one");
  expect(picture("loss").querySelectorAll('[data-name="evaluation"] .curve').length === 1, "evaluations as they are");
  press("Off");
  expect(curves().length === 1, "the curve alone again");

  const drag = (id, from, to) => {
    const root = picture(id), box = root.getBoundingClientRect();
    const send = (type, x) => root.dispatchEvent(new PointerEvent(type, { clientX: box.left + x, clientY: box.top + 60, pointerType: "mouse", bubbles: true }));
    send("pointerdown", from);
    send("pointermove", to);
    expect(root.querySelector(".picked") !== null, "what is picked is shaded");
    send("pointerup", to);
  };
  for (const along of ["Steps", "Time"]) {
    press(along);
    const whole = page.charts[0].xRange;
    drag("loss", 150, 300);
    const [first, last] = page.charts[0].xRange;
    expect(whole[0] < first && first < last && last < whole[1], `${along}: a part of the whole, got ${first} to ${last} of ${whole}`);
    const scale = (one) => along === "Time" ? one.seconds.by : 1;
    for (const one of page.charts.filter((other) => other.across)) {
      const same = one.xRange.every((x, i) => Math.abs(x * scale(one) - look.near[i]) < 1e-6 * Math.abs(look.near[1]));
      expect(same, `${along}: ${one.id} is as near`);
    }
    const ticks = [...picture("rate").querySelectorAll("text.x.tick")].map((text) => Number(text.textContent.replaceAll(",", "")));
    expect(ticks.length > 1 && ticks.every((at) => at >= first - 1 && at <= last + 1), `${along}: ticks between, got ${ticks}`);
    press("Show the whole");
    expect(page.charts[0].xRange[1] === whole[1], `${along}: the whole again`);
  }
  press("Steps");

  for (const id of ["loss", "phases"]) {
    const text = svgText(picture(id), "Saved"), parsed = new DOMParser().parseFromString(text, "image/svg+xml");
    expect(parsed.querySelector("parsererror") === null && parsed.documentElement.getAttribute("width") > 100, `${id}: a picture that can be read`);
    expect(!text.includes("var(--") && !text.includes("currentColor"), `${id}: colours that need no page`);
    expect(chart(id).querySelector("button.save") !== null, `${id}: a button that saves it`);
  }
  document.body.dataset.look = complaints.length === 0 ? "as expected" : complaints.join("; ");
})();
