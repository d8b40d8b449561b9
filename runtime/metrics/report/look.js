// How the reader looks at the pictures: smoothed, near, and saved as files. It stays when the page is drawn again.
"use strict";

const look = { smoothing: 0, near: null };  // near: [first, last], in steps, or in seconds along time

// The moving average that TensorBoard has: each value keeps `weight` of what was before, and the first ones are as if it
// had begun long ago. What is no number stays none.
function smoothed(values, weight) {
  let sum = 0, known = 0;
  return values.map((value) => {
    if (value === null || !isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    known = weight * known + (1 - weight);
    return sum / known;
  });
}

// Buttons of which one is pressed. choices: [[value, text]]
function choiceOf(name, label, now, choices, pick) {
  return html("div", { class: "switch", role: "group", "aria-label": label }, name, html("div", {}, ...choices.map(([value, text]) => {
    const button = html("button", { type: "button", "aria-pressed": String(now === value) }, text);
    button.addEventListener("click", () => pick(value));
    return button;
  })));
}

// Calls `picked` with the first and the last pixel that the mouse was drawn over. Fingers scroll the page.
function onDrag(root, picked) {
  let from = null, shade = null;
  const at = (event) => event.clientX - root.getBoundingClientRect().left;
  root.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0) return;
    from = at(event);
    event.preventDefault();  // no text is marked
  });
  root.addEventListener("pointermove", (event) => {
    if (from === null) return;
    if (shade === null) root.append(shade = svg("rect", { class: "picked", y: frame.top, height: frame.height - frame.top - frame.bottom }));
    shade.setAttribute("x", Math.min(from, at(event)));
    shade.setAttribute("width", Math.abs(at(event) - from));
  });
  const end = (event) => {
    const [first, last] = [Math.min(from, at(event)), Math.max(from, at(event))], wide = from !== null && last - first > 6;
    from = null;
    if (shade !== null) shade.remove();
    shade = null;
    if (wide) picked(first, last);
  };
  root.addEventListener("pointerup", end);
  root.addEventListener("pointerleave", (event) => { if (from !== null) end(event); });
}

// The picture as a file of its own: what the page's style says is written into it.
function svgText(root, title) {
  const copy = root.cloneNode(true), background = getComputedStyle(root.closest(".card") || document.body).backgroundColor;
  const [from, to] = [root, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    to[i].setAttribute("style", ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size"]
      .map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  const [, , width, height] = root.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width);
  copy.prepend(svg("title", {}, title), svg("rect", { width, height, style: `fill:${background}` }));
  return new XMLSerializer().serializeToString(copy);
}

function saveButton(figure, title, name) {
  const button = html("button", { type: "button", class: "save", title: "Save this picture as SVG", "aria-label": `Save "${title}" as SVG` }, "SVG");
  button.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([svgText(figure.querySelector("svg[role=img]"), title)], { type: "image/svg+xml" }));
    const link = html("a", { href: address, download: name + ".svg" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return button;
}
