// SPDX-License-Identifier: Apache-2.0 OR MIT
"use strict";
(() => {
  const cells = JSON.parse(document.getElementById("cells").textContent);
  const testbed = document.getElementById("map-testbed");
  const library = document.getElementById("map-library");
  const FULL_COLOUR_LOG2 = 1.6; // a ratio of 3, or of 1/3
  const MARKS = { slower: " ●", undecided: " ?", "not slower": "" };

  function colour(ratio) {
    const strength = Math.min(Math.abs(Math.log2(ratio)) / FULL_COLOUR_LOG2, 1) * 0.75;
    return ratio > 1 ? `rgba(213, 94, 0, ${strength})` : `rgba(0, 114, 178, ${strength})`;
  }

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  function drawMap() {
    const shown = cells.filter((cell) => cell.testbed === testbed.value
      && (!library.value || cell.library === library.value));
    const sizes = [...new Map(shown.map((cell) => [cell.bytes, cell.size]))].sort((a, b) => a[0] - b[0]);
    const worst = new Map(); // the slowest library
    shown.forEach((cell) => {
      const key = `${cell.pattern}|${cell.bytes}`;
      if (!worst.has(key) || worst.get(key).ratio < cell.ratio) worst.set(key, cell);
    });
    const head = element("tr", "");
    head.append(element("th", "pattern", { scope: "col", class: "text" }));
    sizes.forEach(([, size]) => head.append(element("th", size, { scope: "col" })));
    const rows = [...new Set(shown.map((cell) => cell.pattern))].sort().map((pattern) => {
      const row = element("tr", "");
      row.append(element("th", pattern, { scope: "row", class: "text" }));
      sizes.forEach(([bytes]) => {
        const cell = worst.get(`${pattern}|${bytes}`);
        const drawn = element("td", cell ? cell.ratio.toFixed(2) + MARKS[cell.verdict] : "");
        if (cell) {
          drawn.style.background = colour(cell.ratio);
          drawn.title = `${cell.library}, ${pattern}, ${cell.size}: ${cell.tooltip}`;
        }
        row.append(drawn);
      });
      return row;
    });
    const table = document.getElementById("map-table");
    const [top, body] = [document.createElement("thead"), document.createElement("tbody")];
    top.append(head);
    body.append(...rows);
    table.replaceChildren(top, body);
  }

  const filters = [...document.querySelectorAll("[data-filter]")];
  const rows = [...document.querySelectorAll("#row-table tbody tr")];
  function filterRows() {
    let left = 0;
    rows.forEach((row) => {
      row.hidden = filters.some((filter) => filter.value && row.dataset[filter.dataset.filter] !== filter.value);
      left += row.hidden ? 0 : 1;
    });
    document.getElementById("count").textContent = `${left} of ${rows.length} rows`;
  }

  [testbed, library].forEach((select) => select.addEventListener("change", drawMap));
  filters.forEach((filter) => filter.addEventListener("change", filterRows));
  drawMap();
})();
