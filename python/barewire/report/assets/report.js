// SPDX-License-Identifier: Apache-2.0 OR MIT
"use strict";
// Figures are drawn already, all but the first choice of each packed; so are the rows of long tables. This adds a choice of what they show, tooltips for pointer and keyboard, and the data.
(() => {
  const KIB = 1024;
  const NEAR_PX = 40;

  function element(name, attributes = {}, ...content) {
    const made = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...content);
    return made;
  }

  function messageSize(bytes) {
    for (const [factor, unit] of [[KIB ** 3, "GiB"], [KIB ** 2, "MiB"], [KIB, "KiB"]]) {
      if (bytes && bytes % factor === 0) return `${bytes / factor} ${unit}`;
    }
    return `${bytes} B`;
  }

  const titleOf = (data, axis) => (data[axis] || axis) + (axis === "x" && data.sizes ? ", B" : "");

  // The points of one choice, in the order of the drawing: [x, y, low, high, launches, samples] of each series.
  function pointsOf(data, number) {
    return data.choices[number].series.map((series) => {
      const y = series.y || data.shared;
      const counts = series.c || [];
      const points = series.x.map((x, i) => [x, y[i], ...(Array.isArray(counts[0]) ? counts[i] : counts)]);
      return { name: series.name, points };
    });
  }

  function described(data, name, [x, y, low, high, launches, samples]) {
    const shown = data.sizes ? messageSize(x) : x;
    const lines = [`${data.x || ""}${data.x ? ": " : ""}${shown}`, `${data.y}${data.y ? ": " : ""}${y}`];
    if (typeof low === "number") lines.push(`${data.interval}: ${low} to ${high}`);
    const counts = [];
    if (typeof launches === "number") counts.push(`${launches} ${launches === 1 ? "launch" : "launches"}`);
    if (typeof samples === "number") counts.push(`${samples} samples`);
    if (counts.length) lines.push(counts.join(", "));
    return { name: name || "", lines };
  }

  const COLUMNS = ["series", "x", "y", "low", "high", "launches", "samples"];
  const headings = (data) => COLUMNS.map((name) => (name === "x" || name === "y" ? titleOf(data, name) : name));

  function table(data, number) {
    const rows = pointsOf(data, number).flatMap(({ name, points }) => points.map((point) => [name, ...point]));
    const kept = COLUMNS.map((_, i) => rows.some((row) => row[i] !== undefined && row[i] !== null && row[i] !== ""));
    return [headings(data), ...rows].map((row) => row.filter((_, i) => kept[i]));
  }

  function csv(data) {
    const quoted = (cell) => {
      const text = String(cell ?? "");
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const rows = data.choices.flatMap((choice, number) => pointsOf(data, number).flatMap(({ name, points }) =>
      points.map((point) => [...(data.choice ? [choice.label] : []), name, ...point,
        ...Array(COLUMNS.length - 1 - point.length).fill("")])));
    return [[...(data.choice ? [data.choice] : []), ...headings(data)], ...rows]
      .map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }

  // What is packed in a script: an object of drawings by choice, or the rows of a table.
  async function unpacked(script) {
    const packed = Uint8Array.from(atob(script.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  const tip = element("div", { id: "tip", role: "status", hidden: "" });
  document.body.append(tip);

  function setUp(card) {
    const data = JSON.parse(card.querySelector("script").textContent);
    const plot = card.querySelector(".plot");
    const select = card.querySelector("select");
    const chosen = () => (select ? Number(select.value) : 0);
    let at = [0, 0]; // series and point that the keyboard is at

    function drawing() {
      const shown = plot.querySelector(`[data-choice="${chosen()}"]`);
      return [...shown.querySelectorAll("svg")].find((svg) => getComputedStyle(svg).display !== "none");
    }

    // Where each point is, in the drawing's own units: of bars listed, of lines the path, whose steps are relative.
    function places() {
      const pairs = (text) => {
        const numbers = (text.match(/-?[\d.]+/g) || []).map(Number);
        return numbers.flatMap((x, i) => (i % 2 ? [] : [[x, numbers[i + 1]]]));
      };
      const steps = (path) => {
        let [x, y] = [0, 0];
        return pairs(path).map(([dx, dy], i) => [x = i ? x + dx : dx, y = i ? y + dy : dy]);
      };
      const series = data.choices[chosen()].series;
      return [...drawing().querySelectorAll(".t")].map((mark, number) => {
        const points = mark.dataset.p ? pairs(mark.dataset.p) : mark.getAttribute("d").split("M").slice(1).flatMap(steps);
        return points.slice(0, series[number].x.length);
      });
    }

    function hide() {
      tip.hidden = true;
      card.querySelectorAll(".ring").forEach((ring) => ring.remove());
    }

    function show(series, point) {
      hide();
      const svg = drawing();
      const [x, y] = places()[series][point];
      const found = pointsOf(data, chosen())[series];
      const { name, lines } = described(data, found.name, found.points[point]);
      const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      Object.entries({ class: "ring", cx: x, cy: y, r: 8 }).forEach(([key, value]) => ring.setAttribute(key, value));
      svg.append(ring);
      tip.replaceChildren(...(name ? [element("strong", {}, name)] : []), ...lines.map((line) => element("div", {}, line)));
      tip.hidden = false;
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      const left = Math.min(box.left + x * scale + 14, innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(8, left) + scrollX}px`;
      tip.style.top = `${box.top + y * scale + 14 + scrollY}px`;
    }

    plot.addEventListener("pointermove", (event) => {
      const svg = drawing();
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      let best = [NEAR_PX, 0, 0];
      places().forEach((points, series) => points.forEach(([x, y], point) => {
        const distance = Math.hypot(box.left + x * scale - event.clientX, box.top + y * scale - event.clientY);
        if (distance < best[0]) best = [distance, series, point];
      }));
      if (best[0] < NEAR_PX) show(best[1], best[2]);
      else hide();
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const points = places();
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (event.key === "Escape") return void hide();
      const move = moves[event.key];
      if (!move || !points.length) return;
      event.preventDefault();
      if (!tip.hidden) at = [at[0] + move[0], at[1] + move[1]];
      at[0] = (at[0] + points.length) % points.length;
      at[1] = Math.max(0, Math.min(points[at[0]].length - 1, at[1]));
      show(...at);
    });

    const name = card.dataset.figure;
    const link = (kind, type, content) => {
      const made = element("a", { download: `${name}.${kind}`, href: "#", "data-save": kind }, kind.toUpperCase());
      // Made when asked for: most are never saved.
      made.addEventListener("click", () => { made.href = `data:${type},${encodeURIComponent(content())}`; });
      return made;
    };
    const saved = () => {
      hide();
      const copy = drawing().cloneNode(true);
      copy.removeAttribute("class");
      return new XMLSerializer().serializeToString(copy);
    };
    const details = element("details", {}, element("summary", {}, "Data"));
    const fill = () => {
      details.querySelector("table")?.parentElement.remove();
      if (!details.open) return;
      const [head, ...rows] = table(data, chosen());
      details.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Data of ${name}` },
        element("table", {},
          element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell)))),
          element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell ?? "")))))))));
    };
    details.addEventListener("toggle", fill);
    card.append(element("p", { class: "save" },
      link("svg", "image/svg+xml", saved), " ", link("csv", "text/csv", () => csv(data))), details);

    let others; // the drawings of the other choices, once one is asked for
    select?.addEventListener("change", async () => {
      hide();
      at = [0, 0];
      others ||= unpacked(card.querySelector("script[type='text/plain']")).then((drawings) => Object.entries(drawings).forEach(([number, drawn]) => {
        const made = element("div", { "data-choice": number });
        made.innerHTML = drawn;
        plot.append(made);
      }));
      await others;
      card.querySelectorAll("[data-choice]").forEach((part) => { part.hidden = Number(part.dataset.choice) !== chosen(); });
      fill();
      card.dataset.shown = select.value;
    });
    if (select) select.closest("label").hidden = false;
  }

  document.querySelectorAll("[data-figure]").forEach(setUp);
  document.querySelectorAll("script[data-rows]").forEach(async (script) => {
    const rows = await unpacked(script);
    script.closest(".card").querySelector("tbody").insertAdjacentHTML("beforeend", rows);
    script.remove();
  });
})();
