// SPDX-License-Identifier: Apache-2.0 OR MIT
"use strict";
(() => {
  const darkColours = JSON.parse(document.getElementById("dark-colours").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const LEGEND_ROW_PX = 21;
  const TICK_LABEL_PX = 60;
  const MODE_BAR_PX = 34;
  const AXIS_PX = 130; // the card's padding, the labels of the y axis, and the margin beside the outermost points

  function themed(text) {
    if (!dark.matches) return text;
    // In one pass, so that a dark colour that is also a light colour is not replaced twice.
    return text.replace(/#[0-9A-F]{6}/g, (light) => darkColours[light] || light);
  }

  // Keeps only labels that are far enough apart, so that they do not overlap at any width.
  function thinTicks(axis, data, widthPx) {
    if (axis.type !== "log") return;
    const values = data.flatMap((trace) => trace.x).filter((x) => x > 0);
    const [low, high] = [Math.min(...values), Math.max(...values)].map(Math.log10);
    const pxPerDecade = widthPx / Math.max(high - low, 0.01);
    let last = -Infinity;
    const kept = axis.tickvals.map((value) => {
      const at = Math.log10(value);
      const keep = at > low - 0.02 && at < high + 0.02 && (at - last) * pxPerDecade >= TICK_LABEL_PX;
      if (keep) last = at;
      return keep;
    });
    axis.tickvals = axis.tickvals.filter((_, i) => kept[i]);
    axis.ticktext = axis.ticktext.filter((_, i) => kept[i]);
    axis.tickangle = 0;
  }

  function draw(card) {
    const figure = JSON.parse(themed(card.querySelector("script").textContent));
    const choice = card.querySelector("select");
    const chosen = choice ? figure.choices[Number(choice.value)] : figure;
    // Long labels on wide pages, short labels on narrow ones.
    const kind = narrow.matches ? "narrow" : "wide";
    const data = chosen.data.filter((trace) => !trace.meta || trace.meta === kind);
    if (figure.shared_y) data.forEach((trace) => { trace.y = figure.shared_y; });
    if (chosen.xaxis) figure.layout.xaxis = chosen.xaxis;
    if (chosen.yaxis) figure.layout.yaxis = chosen.yaxis;
    const named = data.filter((trace) => trace.showlegend !== false).length;
    const rows = narrow.matches ? named : Math.ceil(named / 4);
    // On narrow pages the legend is below the plot, one row per entry, and adds to the height.
    figure.layout.height = (figure.height_px || 340) + LEGEND_ROW_PX * (rows + 1);
    thinTicks(figure.layout.xaxis, data, card.clientWidth - AXIS_PX);
    figure.layout.margin.t = narrow.matches ? 10 : MODE_BAR_PX;
    figure.layout.dragmode = narrow.matches ? false : "zoom";
    const config = {
      displaylogo: false, responsive: true, displayModeBar: narrow.matches ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      showSendToCloud: false,
    };
    Plotly.react(card.querySelector(".plot"), data, figure.layout, config);
  }

  const cards = document.querySelectorAll(".card[data-figure]");
  const drawAll = () => cards.forEach(draw);
  cards.forEach((card) => card.querySelector("select")?.addEventListener("change", () => draw(card)));
  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  drawAll();
})();
