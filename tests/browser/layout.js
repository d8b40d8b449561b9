// Put at the end of a page by report.sh: what a reader would stumble over in how the browser laid it out. Complaints are
// left in <body data-layout>, which is empty when all is well.
"use strict";

(() => {
  const complaints = [];
  const box = (element) => element.getBoundingClientRect();
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const name = (figure) => "chart " + figure.dataset.chart;

  if (document.documentElement.scrollWidth > innerWidth) complaints.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);

  for (const figure of document.querySelectorAll("figure")) {
    const texts = [...figure.querySelectorAll("svg[role=img] text")].filter((text) => text.textContent !== "");
    texts.forEach((text, i) => {
      for (const other of texts.slice(i + 1)) if (overlap(box(text), box(other))) complaints.push(`${name(figure)}: "${text.textContent}" lies on "${other.textContent}"`);
      if (box(text).left < box(figure).left || box(text).right > box(figure).right) complaints.push(`${name(figure)}: "${text.textContent}" leaves its card`);
    });
    const upright = [...figure.querySelectorAll("text.y.tick")], axis = figure.querySelectorAll("line.axis");
    if (upright.length > 0) {
      const bottom = Math.max(...[...axis].map((line) => line.y1.baseVal.value)), lowest = Math.max(...upright.map((text) => text.y.baseVal[0].value));
      if (upright.length < 3) complaints.push(`${name(figure)}: ${upright.length} ticks on the upright axis`);
      if (Math.abs(lowest - 4 - bottom) > 1) complaints.push(`${name(figure)}: no tick where the upright axis begins`);
    }
  }

  for (const table of document.querySelectorAll(".card.table")) {
    if (table.scrollWidth > table.clientWidth) complaints.push(`the table "${table.dataset.table}" is ${table.scrollWidth} wide in a card of ${table.clientWidth}`);
  }

  // A word of a table or a run's name is never broken; paths and other long values may be.
  for (const cell of document.querySelectorAll("th, td.number, .runs b")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (walker.nextNode()) {
      const upright = getComputedStyle(walker.currentNode.parentElement).writingMode.startsWith("vertical");
      for (const word of walker.currentNode.data.matchAll(/\S+/g)) {
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].length);
        // What an ellipsis cuts off has rectangles of its own, on the same line.
        const lines = new Set([...range.getClientRects()].map((rect) => Math.round(upright ? rect.left : rect.top)));
        if (lines.size > 1) complaints.push(`the word "${word[0]}" is broken`);
      }
    }
  }

  // No hole beside a picture, but the last.
  const figures = [...document.querySelectorAll(".charts > figure")];
  if (innerWidth > 1000) {
    figures.slice(0, -1).forEach((figure) => {
      const alone = figures.every((other) => other === figure || Math.abs(box(other).top - box(figure).top) > 1);
      if (alone && box(figure).width < innerWidth / 2) complaints.push(`${name(figure)}: nothing beside it`);
    });
  }
  for (const scroll of document.querySelectorAll(".scroll")) {
    const rows = scroll.querySelectorAll("tr").length;
    if (rows < 30 && scroll.scrollHeight > scroll.clientHeight) complaints.push(`a table of ${rows} rows is hidden in part`);
  }
  document.body.dataset.layout = complaints.join("; ");
})();
